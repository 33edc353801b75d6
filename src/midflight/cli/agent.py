"""`midflight agent`: one per host, started by the launcher or by hand."""

from midflight.agent.main import main

__all__ = ["main"]
