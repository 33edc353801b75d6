"""What runs inside a training process: with its tests the only importer of torch."""
