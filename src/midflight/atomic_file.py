"""Writing a file so that readers see the old one or the new one, never a part."""

import os
import tempfile
from pathlib import Path


def write(path: Path, data: bytes, mode: int = 0o600, durable: bool = True) -> None:
    """`durable`: after a crash of the machine as well. Nothing is left behind where it fails."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            if durable:
                os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
