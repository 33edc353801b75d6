"""Text that others chose, as people may be shown it.

Decides which characters are written out: those that command a terminal, and those that turn the
direction of writing and so hide what is written.
"""

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """The text with its control characters written out, but for tabs and ends of lines.

    What JSON does not escape by itself is written as JSON would.
    """
    if text.isascii() and text.isprintable():
        return text
    return _CONTROL.sub(_written_out, text)


def in_one_line(text: str) -> str:
    """The same, and its ends of lines: it has one row of a table, or one line of a log."""
    return printable(text).replace("\n", "\\n")


def _written_out(found: re.Match[str]) -> str:
    number = ord(found.group())
    return f"\\x{number:02x}" if number < 0x20 else f"\\u{number:04x}"
