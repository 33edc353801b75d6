"""Where fetched code shows up: `WORKING_DIR/code/REPO`, a link into the job's own folder.

Jobs may share a working directory. A link is made where nothing is; one that belongs to another
job is taken over once that job is over, and shared with it while both mean the same commit. What
Midflight has not made is never touched. All of this is quick, and blocks for no longer than a
file operation does.
"""

import contextlib
import enum
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from midflight.atomic_file import write
from midflight.errors import JobFailed

NOTE = "links.json"  # in the job's folder: its working directory, and whether it made `code`


class Neighbour(enum.Enum):
    """What another job's link means to this one."""

    OVER = "over"  # it is finished or gone: its link may be taken over
    SAME = "same"  # it has the same code, so its link will do
    BUSY = "busy"


def link(
    folder: Path, working_dir: Path, jobs: Path, neighbour: Callable[[str], Neighbour]
) -> None:
    """Show everything in `folder/code` in `working_dir/code`; JobFailed if something is there.

    `jobs` is the folder that all jobs are in, and `neighbour` is asked with a job's key.
    """
    if not working_dir.is_dir():
        raise JobFailed(f"the working directory {working_dir} does not exist; give --working-dir")
    shown = working_dir / "code"
    try:
        _, made_before = _read_note(folder)
        made = made_before or not shown.is_dir()
        note = {"working_dir": str(working_dir), "made": made}
        write(folder / NOTE, json.dumps(note).encode())
        if made:
            shown.mkdir(exist_ok=True)
        for target in _fetched(folder):
            _link_one(shown / target.name, target, jobs, neighbour)
    except OSError as error:
        raise JobFailed(
            f"cannot link the fetched code into {shown}: {error.strerror}; "
            "give another --working-dir"
        ) from None


def unlink(folder: Path, heirs: Sequence[Path] = ()) -> None:
    """Take the job's links away; one that another job still needs is turned to that one's code.

    `heirs` are the folders of jobs with the same code and the same working directory.
    """
    working_dir, made = _read_note(folder)
    if working_dir is None:
        return
    shown = working_dir / "code"
    for target in _fetched(folder):
        place = shown / target.name
        if _target(place) != target:
            continue
        heir = next((h for h in heirs if (h / "code" / target.name).exists()), None)
        with contextlib.suppress(OSError):
            if heir is None:
                place.unlink()
            else:
                _replace(place, heir / "code" / target.name)
    if made:
        with contextlib.suppress(OSError):  # others have something there
            shown.rmdir()


def _link_one(place: Path, target: Path, jobs: Path, neighbour: Callable[[str], Neighbour]) -> None:
    found = _target(place)
    if found == target:
        return
    if found is None and not os.path.lexists(place):
        place.symlink_to(target)
        return
    owner = _owner(found, jobs) if found is not None else ""
    if not owner:
        raise JobFailed(
            f"{place} is there already and was not made by a job; "
            "move it away, or give another --working-dir"
        )
    match neighbour(owner):
        case Neighbour.OVER:
            _replace(place, target)
        case Neighbour.SAME:
            return
        case Neighbour.BUSY:
            raise JobFailed(
                f"{place} belongs to the job {owner}, which is not over and has other code; "
                "give another --working-dir, or delete that job first"
            )


def working_dir_of(folder: Path) -> Path | None:
    """Where the job's code shows up; None if it was never linked."""
    return _read_note(folder)[0]


def _read_note(folder: Path) -> tuple[Path | None, bool]:
    try:
        found = json.loads((folder / NOTE).read_text())
        return Path(str(found["working_dir"])), bool(found["made"])
    except (OSError, ValueError, KeyError, TypeError):
        return None, False


def _fetched(folder: Path) -> list[Path]:
    """The top of what was fetched; one folder for git."""
    try:
        return sorted((folder / "code").iterdir())
    except OSError:
        return []


def _target(place: Path) -> Path | None:
    """Where a link leads, None if there is no link."""
    try:
        return Path(os.path.normpath(place.parent / place.readlink()))
    except OSError:
        return None


def _owner(target: Path, jobs: Path) -> str:
    """The key of the job whose folder holds the target, "" if none does."""
    try:
        parts = target.relative_to(jobs).parts
    except ValueError:
        return ""
    return "/".join(parts[:2]) if len(parts) == 4 and parts[2] == "code" else ""


def _replace(place: Path, target: Path) -> None:
    """Atomically: whoever follows the link gets to the one place or to the other."""
    temporary = place.with_name(f".{place.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(place)
