"""This machine: instances are process groups, each with a keeper of its own."""
