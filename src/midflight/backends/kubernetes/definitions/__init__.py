"""The custom resources, with their schemas. Pure."""
