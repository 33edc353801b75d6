"""The line that says most about a bad end: the last that the instance printed before it.

What it said on stderr comes first: a traceback ends with its error there, and so does the launcher.
"""

from pathlib import Path

TAIL = 16 << 10  # bytes of the log that are looked at
LONGEST = 300  # characters


def last_words(log: Path) -> str:
    """An empty text if it has said nothing, or nobody can tell."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - TAIL))
            entries = [line.split(b" ", 3) for line in file.read().split(b"\n")]
    except OSError:
        return ""
    said = [(entry[1], entry[3].strip()) for entry in entries if len(entry) == 4]
    for stream in (b"stderr", b"stdout"):
        for name, text in reversed(said):
            if name == stream and text:
                return text.decode(errors="replace")[:LONGEST]
    return ""
