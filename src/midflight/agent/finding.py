"""Which coordinator an agent dials: the one it was told, or whichever serves a run's folder now.

An agent that is started with `--run-dir` may start before the run exists: it waits for the token
and the address to be written, for as long as whoever started it lets it.
"""

import time
from pathlib import Path

from midflight.backoff import LOOK
from midflight.private_file import check_folder
from midflight.rundir import RunDir


def await_run(folder: Path) -> tuple[str, Path]:
    """The coordinator's address, and the file with the token, as soon as both are there."""
    check_folder(folder)
    run = RunDir(folder)
    while (address := run.read_address()) is None or not run.token_file.exists():
        time.sleep(LOOK)
    check_folder(folder)  # whoever made it while it was waited for
    return address, run.token_file


def address_now(folder: str, last: str) -> str:
    """A run that was begun anew may listen elsewhere."""
    return RunDir(Path(folder)).read_address() or last
