"""Chaos on a training that runs here: strikes chosen by a seed, and what came of each.

`choice` and `recovery` decide, `strikes` does, `monkey` is the loop around them.
"""
