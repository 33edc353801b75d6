"""`midflight run`: the launcher."""

from midflight.run.main import main

__all__ = ["main"]
