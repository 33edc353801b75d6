"""The others: each file holds a system's launcher (no torch) and its training script (`main`)."""
