"""`midflight-provide DIR`: puts Midflight into a folder, for images that have Python and not us.

An init container calls it with a volume that the job's containers mount as well. DIR/midflight is
the package and DIR/bin the commands: PYTHONPATH=DIR and DIR/bin in front of PATH is all that Python
3.10 or later needs to run agents, launchers and drop-ins, which are made of the standard library
alone. Both names change in one step each, so nobody ever finds half of one.
"""

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from midflight.python310 import RUN_MODULE

PACKAGE = Path(__file__).resolve().parent
SHIMS = PACKAGE / "shims" / "bin"
COMMANDS = ("midflight", "arena")
_SCRIPT = f"""#!/bin/sh
exec "${{MIDFLIGHT_PYTHON:-python3}}" -c "{RUN_MODULE}" midflight.cli.main "$@"
"""
_READABLE = 0o644  # whoever runs the job may be another user than whoever copied
_RUNNABLE = 0o755


def main(argv: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    if len(words) != 1 or words[0].startswith("-"):
        asked = bool(words) and words[0] in ("-h", "--help")
        print(
            "usage: midflight-provide DIR\n\nPuts Midflight into a folder, for other images.",
            file=sys.stdout if asked else sys.stderr,
        )
        return 0 if asked else 2
    try:
        provide(Path(words[0]))
    except OSError as error:
        print(
            f"midflight-provide: error: {words[0]} wants to be a folder that can be written to: "
            f"{error.strerror} ({error.filename}); mount a volume there",
            file=sys.stderr,
        )
        return 1
    return 0


def provide(folder: Path) -> None:
    """Does nothing that is done already; an older copy stays for who has it open."""
    folder.mkdir(parents=True, exist_ok=True)
    content = f".midflight-{digest()}"
    if not (folder / content).is_dir():
        _copy_to(folder, content)
    _point(folder / "midflight", f"{content}/midflight")
    _point(folder / "bin", f"{content}/bin")


def digest() -> str:
    """Names a copy after what is in it."""
    found = hashlib.sha256(_SCRIPT.encode())
    for path in _files():
        found.update(f"{path.relative_to(PACKAGE)}\0".encode())
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()[:16]


def _files() -> Iterator[Path]:
    """Without what Python compiled: another Python could not use it."""
    for path in sorted(PACKAGE.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path


def _copy_to(folder: Path, content: str) -> None:
    with tempfile.TemporaryDirectory(prefix=".copying-", dir=folder) as made:
        whole = Path(made) / "content"
        for path in _files():
            _copy(path, whole / "midflight" / path.relative_to(PACKAGE))
        for path in sorted(SHIMS.iterdir()):
            _copy(path, whole / "bin" / path.name)
        for name in COMMANDS:
            (whole / "bin" / name).write_text(_SCRIPT, encoding="utf-8")
            (whole / "bin" / name).chmod(_RUNNABLE)
        for place in (whole, *(path for path in whole.rglob("*") if path.is_dir())):
            place.chmod(_RUNNABLE)
        try:
            whole.rename(folder / content)
        except OSError:
            if not (folder / content).is_dir():  # else somebody else was quicker
                raise


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(_RUNNABLE if source.parent == SHIMS else _READABLE)


def _point(link: Path, to: str) -> None:
    """A symbolic link is the one thing that can be replaced by another in a single step."""
    if link.is_symlink() and os.readlink(link) == to:
        return
    with tempfile.TemporaryDirectory(prefix=".linking-", dir=link.parent) as made:
        fresh = Path(made) / "link"
        fresh.symlink_to(to)
        fresh.replace(link)


if __name__ == "__main__":
    sys.exit(main())
