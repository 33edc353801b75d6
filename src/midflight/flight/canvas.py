"""Elements of an SVG picture, as text. Decides how text is escaped and how numbers are shown.

What is shown may come from anybody: names, reasons, the keywords of `job.log`. Nothing of it can
leave its place or is endless, control characters are written out, and other characters that XML
does not allow are replaced.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from midflight.printable import in_one_line

LONGEST_TEXT = 500  # characters; a reason is one or two sentences
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def text_of(text: str) -> str:
    shown = text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}\u2026"
    return escape(_FORBIDDEN.sub("\ufffd", in_one_line(shown)))


def number(value: float) -> str:
    """A coordinate."""
    return f"{value:.1f}".removesuffix(".0")


def label(x: float, y: float, text: str, kind: str = "", title: str = "") -> str:
    return (
        f'<text x="{number(x)}" y="{number(y)}"{_class(kind)}>{_title(title)}{text_of(text)}</text>'
    )


def rect(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> str:
    size = f'width="{number(max(width, 0.5))}" height="{number(height)}"'
    return f'<rect x="{number(x)}" y="{number(y)}" {size}{_class(kind)}>{_title(title)}</rect>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str, title: str = "") -> str:
    ends = f'x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}"'
    return f"<line {ends}{_class(kind)}>{_title(title)}</line>"


def path(points: Sequence[tuple[float, float]], kind: str) -> str:
    """A line through these points."""
    if not points:
        return ""
    return f'<path d="M{" L".join(f"{number(x)} {number(y)}" for x, y in points)}"{_class(kind)}/>'


@dataclass(frozen=True)
class About:
    """What a picture is called, and what it shows, for whoever does not see it."""

    title: str
    description: str


def picture(width: float, height: float, about: About, style: str, parts: Sequence[str]) -> str:
    size = f'width="{number(width)}" height="{number(height)}"'
    box = f'viewBox="0 0 {number(width)} {number(height)}"'
    named = 'role="img" aria-labelledby="picture-title" aria-describedby="picture-description"'
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {box} {named}>',
        f'<title id="picture-title">{text_of(about.title)}</title>',
        f'<desc id="picture-description">{text_of(about.description)}</desc>',
        f"<style>{style}</style>",
    ]
    return "\n".join([*head, *(part for part in parts if part), "</svg>\n"])


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def _title(title: str) -> str:
    return f"<title>{text_of(title)}</title>" if title else ""
