"""The way to the API server: where it is, who asks, which resources, which errors."""
