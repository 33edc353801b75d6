"""`midflight agent`: one per host, started by the launcher or by hand."""

from midflight.agent.main import main
from midflight.agent.main import options as parser

__all__ = ["main", "parser"]
