"""An HTML page that stands alone, as text. Decides how it looks and what it may load: nothing.

There is no script and no reference. The Content-Security-Policy forbids whatever else a browser
could fetch or run, and allows the style sheets that are in the page by their hashes. Text is
escaped as in the picture. A table of thousands of rows shows the first and the last of them.
"""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from midflight.flight.canvas import text_of

MOST_ROWS = 200
# No class here is one of the picture's, whose style sheet applies to the whole page.
STYLE = (
    ":root{color-scheme:light dark;--text:#24292f;--soft:#57606a;--line:#d8dee4;--back:#fff}"
    "*{box-sizing:border-box}"
    "body{margin:0 auto;max-width:68rem;padding:1rem;background:var(--back);color:var(--text);"
    "font:1rem/1.5 system-ui,sans-serif;overflow-wrap:anywhere}"
    "h1{font-size:1.6rem;line-height:1.25;margin:.5rem 0}h2{font-size:1.2rem;margin:2rem 0 .5rem}"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:.25rem 1.5rem;margin:0}"
    "dt{color:var(--soft)}dd{margin:0}"
    ".scroll{overflow-x:auto}:focus-visible{outline:2px solid #3b76c4;outline-offset:2px}"
    "svg{display:block;width:100%;min-width:44rem;height:auto}"
    "table{border-collapse:collapse;font-size:.9rem;min-width:100%}"
    "caption{text-align:left;color:var(--soft);padding-bottom:.5rem}"
    "th,td{text-align:left;vertical-align:top;padding:.3rem .75rem .3rem 0;"
    "border-bottom:1px solid var(--line);overflow-wrap:normal}"
    "td:last-child{overflow-wrap:anywhere;min-width:10rem}tbody th{font-weight:400}"
    "th.num,td.num{text-align:right;padding-right:1.25rem;font-variant-numeric:tabular-nums;white-space:nowrap}"
    "@media (max-width:40rem){dl{display:block}dd{margin-bottom:.5rem}}"
    "@media screen and (prefers-color-scheme:dark)"
    "{:root{--text:#e6edf3;--soft:#9198a1;--line:#30363d;--back:#0d1117}}"
    "@media print{body{max-width:none;padding:0;font-size:10pt}.scroll{overflow:visible}"
    "svg{min-width:0}table{font-size:8pt}h2{break-after:avoid}tr,svg{break-inside:avoid}"
    "th,td{overflow-wrap:anywhere}}"
)


@dataclass(frozen=True)
class Column:
    name: str
    is_number: bool = False


def page(title: str, body: Sequence[str], *other_styles: str) -> str:
    """`other_styles`: those of pictures in the body."""
    styles = " ".join(_source(style) for style in (STYLE, *other_styles))
    policy = f"default-src 'none'; style-src {styles}; base-uri 'none'; form-action 'none'"
    head = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{text_of(title)}</title>",
        f"<style>{STYLE}</style>",
        "</head>",
        "<body>",
    ]
    return "\n".join([*head, *(part for part in body if part), "</body>", "</html>", ""])


def _source(style: str) -> str:
    return f"'sha256-{b64encode(sha256(style.encode()).digest()).decode()}'"


def heading(text: str) -> str:
    return f"<h1>{text_of(text)}</h1>"


def paragraph(text: str) -> str:
    return f"<p>{text_of(text)}</p>"


def facts(values: Sequence[tuple[str, str]]) -> str:
    rows = [f"<dt>{text_of(name)}</dt>\n<dd>{text_of(value)}</dd>" for name, value in values]
    return "\n".join(["<dl>", *rows, "</dl>"])


def section(name: str, title: str, *parts: str) -> str:
    """`name`: an id of ours. Empty if its last part is."""
    if not parts[-1]:
        return ""
    heading = f'<h2 id="{name}">{text_of(title)}</h2>'
    return "\n".join(["<section>", heading, *parts, "</section>"])


def scrolling(name: str, content: str) -> str:
    """What may be wider than a phone scrolls by itself. `name`: of its section. Empty if it is."""
    box = f'<div class="scroll" role="region" aria-labelledby="{name}" tabindex="0">'
    return f"{box}\n{content}\n</div>" if content else ""


def table(caption: str, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    """The first cell of a row names it. Empty without rows."""
    if not rows:
        return ""
    heads = "".join(f'<th scope="col"{_kind(each)}>{each.name}</th>' for each in columns)
    shown = [_row(columns, row) for row in rows]
    if len(rows) > MOST_ROWS:
        half, left_out = MOST_ROWS // 2, len(rows) - MOST_ROWS
        note = f'<tr><td colspan="{len(columns)}">{left_out:,} more are not shown</td></tr>'
        shown = [*shown[:half], note, *shown[-half:]]
    return "\n".join(
        [
            f"<table>\n<caption>{text_of(caption)}</caption>",
            f"<thead>\n<tr>{heads}</tr>\n</thead>\n<tbody>",
            *shown,
            "</tbody>\n</table>",
        ]
    )


def _row(columns: Sequence[Column], row: Sequence[str]) -> str:
    first, *others = zip(columns, row, strict=True)
    cells = [f'<th scope="row"{_kind(first[0])}>{text_of(first[1])}</th>']
    cells += [f"<td{_kind(column)}>{text_of(cell)}</td>" for column, cell in others]
    return f"<tr>{''.join(cells)}</tr>"


def _kind(column: Column) -> str:
    return ' class="num"' if column.is_number else ""
