"""`midflight run`: the launcher."""

from midflight.run.main import main
from midflight.run.options import parser

__all__ = ["main", "parser"]
