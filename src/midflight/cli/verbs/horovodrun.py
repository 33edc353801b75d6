"""What a job's own horovodrun calls."""

from midflight.compat.horovod.runner.flags import parser
from midflight.compat.horovod.runner.launch import main

__all__ = ["main", "parser"]
