"""The command line: one short file per verb; each parses, calls and prints."""
