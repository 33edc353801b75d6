"""horovodrun, and `horovod.run` from Python. No torch is loaded by anything in here."""

from midflight.compat.horovod.runner.function import run

__all__ = ["run"]
