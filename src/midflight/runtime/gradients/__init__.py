"""Gradients averaged over the world, and buffers that follow."""
