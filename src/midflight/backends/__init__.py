"""Where instances run."""
