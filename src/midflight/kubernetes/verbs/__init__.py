"""The verbs of the command line against the API server, without an operator in between."""
