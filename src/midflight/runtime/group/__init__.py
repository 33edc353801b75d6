"""The process group of one generation: connected through the coordinator, cut at will."""
