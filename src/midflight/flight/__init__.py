"""The record of a run: what the coordinator writes down, and what is made of it. All is pure."""
