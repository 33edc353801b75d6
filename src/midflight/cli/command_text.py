"""The text of a command: one that was quoted over several lines becomes one line for the shell.

The guides break commands into lines, with and without backslashes, and Arena made one line of them
by accident of its templates. Here it is on purpose, and only where it looks like one command: if
every further line is indented, or some line starts with a dash. What is inside quotes stays as it
is, a here-document or a plain script is left alone, and lines of comment go.
"""

import re

_HERE_DOCUMENT = re.compile(r"(?<!<)<<-?\s*['\"\\A-Za-z_]")
_CONTINUED = re.compile(r"[ \t]*\\[ \t]*$")


def fold(command: str) -> str:
    text = command.replace("\r\n", "\n").strip()
    if "\n" not in text or _HERE_DOCUMENT.search(text):
        return text
    lines = _continued(_lines(text))
    if not _is_one_command(lines):
        return "\n".join(line.rstrip() for line in lines)
    pieces = (line.strip() for line in lines)
    return " ".join(piece for piece in pieces if piece and not piece.startswith("#"))


def _is_one_command(lines: list[str]) -> bool:
    further = [line for line in lines[1:] if line.strip()]
    starts_with_dash = any(line.lstrip().startswith("-") for line in further)
    return starts_with_dash or all(line[0].isspace() for line in further)


def _continued(lines: list[str]) -> list[str]:
    """Lines that end with a backslash, joined with what follows."""
    joined: list[str] = []
    goes_on = False
    for line in lines:
        body = _CONTINUED.sub("", line)
        if goes_on:
            joined[-1] = f"{joined[-1].rstrip()} {body.strip()}"
        else:
            joined.append(body)
        goes_on = body != line
    return joined


def _lines(text: str) -> list[str]:
    """Split at the line breaks that are outside quotes."""
    lines, start, quote, escaped = [], 0, "", False
    for position, letter in enumerate(text):
        if letter == "\n" and not quote:
            lines.append(text[start:position])
            start, escaped = position + 1, False
        elif escaped:
            escaped = False
        elif letter == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
    return [*lines, text[start:]]
