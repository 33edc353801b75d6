"""The flight plan as a picture: one time axis, and above it size, members, throughput and loss.

Decides only where things go. The picture is one SVG file without scripts or references; in a
browser each band and mark tells more when it is pointed at, and it follows a dark theme.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from midflight.flight import canvas
from midflight.flight.amounts import clock, seconds, short, ticks, time_ticks
from midflight.flight.plan import Band, Change, Plan
from midflight.quantities import counted

WIDTH, LEFT, RIGHT = 1000.0, 110.0, 24.0
TOP, GAP = 56.0, 30.0
SIZE_HEIGHT, CURVE_HEIGHT, BAND_HEIGHT = 84.0, 84.0, 16.0
LETTER = 6.4  # the width of one, roughly
MOST_BANDS = 60  # the rest is counted
MOST_POINTS = 900  # of a curve; then neighbours are drawn as their mean
MOST_DRAWN = 1e30  # a value beyond it is a gap, like one that is no number
MOST_MARKS = 300  # changes: failures, then the longest pauses; the line shows all sizes
MOST_PAUSES = 12  # the longest
_COLOURS = ("#3b76c4", "#3f9b6c", "#a8642a", "#7b5bb5", "#2a8f9d", "#b5567f", "#7d8a2e", "#5d6b7a")
_PHASES = ("#c2410c", "#d98324", "#3b76c4", "#3f9b6c", "#8a8f98")  # as in Pause.phases
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#24292f}.small{font-size:11px;fill:#57606a}"
    ".head{font-size:15px;font-weight:600}.mid{text-anchor:middle}.end{text-anchor:end}"
    ".on{fill:#fff;font-size:11px}.back{fill:#fff}.grid{stroke:#d8dee4}"
    ".size{fill:none;stroke:#24292f;stroke-width:2}.curve{fill:none;stroke:#3b76c4;stroke-width:1.5}"
    ".wait{fill:#8c959f}.planned{stroke:#3b76c4;stroke-dasharray:3 3}"
    ".failure{stroke:#cf222e;stroke-width:1.5}.lost{fill:#cf222e}"
    + "".join(f".h{n}{{fill:{colour}}}" for n, colour in enumerate(_COLOURS))
    + "".join(f".p{n}{{fill:{colour}}}" for n, colour in enumerate(_PHASES))
    + "@media screen and (prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9198a1}"
    ".back{fill:#0d1117}.grid{stroke:#30363d}.size{stroke:#e6edf3}.curve{stroke:#6ea8fe}.on{fill:#fff}}"
)
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class _Axis:
    begin: float
    end: float

    def x(self, t: float) -> float:
        share = (t - self.begin) / (self.end - self.begin)
        return LEFT + min(1.0, max(0.0, share)) * (WIDTH - LEFT - RIGHT)


def draw(plan: Plan) -> str:
    begin = plan.changes[0].t if plan.changes else plan.begin
    axis = _Axis(begin, max(plan.end, begin + 1e-3))
    parts, y = _head(plan), TOP
    marked = _marked(plan.changes)
    marks = [(change.t, "failure" if change.is_failure else "planned") for change in marked]
    for panel in (_sizes(plan, marked, axis), _bands(plan, axis), *_curves(plan, axis)):
        parts += [f'<g transform="translate(0 {canvas.number(y)})">', *panel.parts, "</g>"]
        y += panel.height + GAP
    parts[1:1] = [canvas.line(axis.x(t), TOP, axis.x(t), y - GAP, kind) for t, kind in marks]
    parts += _time(axis, y - GAP)
    pauses = _pauses(plan.changes)
    parts += [f'<g transform="translate(0 {canvas.number(y + 14)})">', *pauses.parts, "</g>"]
    height = y + 14 + pauses.height
    back = canvas.rect(0, 0, WIDTH, height, "back")
    return canvas.picture(WIDTH, height, _about(plan), STYLE, [back, *parts])


@dataclass(frozen=True)
class _Panel:
    height: float
    parts: list[str]


def _about(plan: Plan) -> canvas.About:
    shown = "the size of the world, a band for each member, throughput, loss and pauses"
    return canvas.About(
        title=f"The flight plan of {plan.name or 'a run'}",
        description=f"{', '.join(_facts(plan))}. On one time axis, from top to bottom: {shown}.",
    )


def _facts(plan: Plan) -> list[str]:
    last = plan.last
    facts = [f"{clock(plan.end)} in all", plan.phase or "running"]
    if last is not None:
        facts.append(f"{last.step:,} steps")
        facts += [f"{last.samples:,} samples"] if last.samples else []
    changes = len(plan.changes) - 1
    facts += [counted(changes, "change")] if changes > 0 else []
    return facts


def _head(plan: Plan) -> list[str]:
    return [
        canvas.label(LEFT, 24, plan.name or "run", "head"),
        canvas.label(WIDTH - RIGHT, 24, ", ".join(_facts(plan)), "small end"),
    ]


def _marked(changes: Iterable[Change]) -> list[Change]:
    """Those that are pointed out, in the order of their time; the start is none."""

    def weight(change: Change) -> tuple[bool, float]:
        return change.is_failure, change.pause.seconds if change.pause is not None else 0.0

    found = sorted((c for c in changes if c.before), key=weight, reverse=True)
    return sorted(found[:MOST_MARKS], key=lambda change: change.t)


def describe(change: Change) -> str:
    """In one line, for people."""
    paused = f", paused {seconds(change.pause.seconds)}" if change.pause is not None else ""
    why = f" ({change.detail})" if change.detail else ""
    return f"{change.cause}{why}: {change.before} to {change.after} at step {change.step:,}{paused}"


def _sizes(plan: Plan, marked: Sequence[Change], axis: _Axis) -> _Panel:
    most = max((max(c.before, c.after) for c in plan.changes), default=1)

    def y(size: float) -> float:
        return SIZE_HEIGHT * (1 - size / (most + 0.5))

    points: list[tuple[float, float]] = []
    for change in plan.changes:
        x = axis.x(change.t)
        points += [(x, y(change.before)), (x, y(change.after))]
    points = points[1:]
    if points:
        points.append((axis.x(plan.end), points[-1][1]))
    parts = _scale("members", [float(s) for s in range(0, most + 1, -(-most // 5))], y)
    parts.append(canvas.path(_outline(points), "size"))
    free = [0.0, 0.0]  # to the right of the labels, in each of two rows
    for change in marked:
        x = axis.x(change.t)
        word = seconds(change.pause.seconds) if change.pause is not None else change.cause
        row = 0 if free[0] <= x else 1
        if free[row] <= x:  # the others tell when they are pointed at
            free[row] = x + LETTER * len(word) + 10
            end = "end " if x > WIDTH - RIGHT - 60 else ""
            at = x - 3 if end else x + 3
            parts.append(canvas.label(at, -13.0 + 11 * row, word, f"{end}small", describe(change)))
        dot = "lost" if change.is_failure else "h0"
        parts.append(canvas.rect(x - 3, y(change.after) - 3, 6, 6, dot, describe(change)))
    return _Panel(SIZE_HEIGHT, parts)


def _outline(points: Points) -> Points:
    """The same line where many of its points share a pixel: how it comes, goes, and how far."""
    kept: list[tuple[float, float]] = []
    for _, group in groupby(points, key=lambda point: int(point[0])):
        near = list(group)
        middle = [min(near, key=_height), max(near, key=_height)] if len(near) > 4 else near[1:-1]
        kept += [near[0], *middle, near[-1]] if len(near) > 1 else near
    return kept


def _height(point: tuple[float, float]) -> float:
    return point[1]


def _bands(plan: Plan, axis: _Axis) -> _Panel:
    hosts = list(dict.fromkeys(band.host for band in plan.bands))
    shown = plan.bands[:MOST_BANDS]
    parts: list[str] = []
    for row, band in enumerate(shown):
        colour = f"h{hosts.index(band.host) % len(_COLOURS)}"
        parts += _band(band, row * BAND_HEIGHT, axis, colour)
    height = len(shown) * BAND_HEIGHT
    if len(plan.bands) > len(shown):
        rest = f"and {len(plan.bands) - len(shown)} more"
        parts.append(canvas.label(LEFT, height + 12, rest, "small"))
        height += BAND_HEIGHT
    return _Panel(height, parts)


def _band(band: Band, y: float, axis: _Axis, colour: str) -> list[str]:
    why = f", {band.reason}" if band.reason else ""
    title = f"{band.member} on {band.host}: {clock(band.begin)} to {clock(band.end)}{why}"
    came, x, end = axis.x(band.joined), axis.x(band.begin), axis.x(band.end)
    parts = [canvas.label(LEFT - 8, y + 12, band.member, "small end", title)]
    if band.joined < band.begin:
        parts.append(canvas.rect(came, y + 7, x - came, 2, "wait", title))
    parts.append(canvas.rect(x, y + 1, end - x, BAND_HEIGHT - 3, colour, title))
    if band.reason.startswith("lost"):
        parts.append(canvas.rect(end - 2, y, 4, BAND_HEIGHT - 1, "lost", title))
    width = LETTER * len(band.host)
    if width + 10 < end - x:
        parts.append(canvas.label(x + 5, y + 12, band.host, "on", title))
    if band.reason and LETTER * len(band.reason) < WIDTH - RIGHT - end:
        parts.append(canvas.label(end + 5, y + 12, band.reason, "small", title))
    elif band.reason and width + LETTER * len(band.reason) + 30 < end - x:
        parts.append(canvas.label(end - 6, y + 12, band.reason, "on end", title))
    return parts


def _curves(plan: Plan, axis: _Axis) -> list[_Panel]:
    counts_samples = plan.last is not None and plan.last.samples > 0
    rates = [(r.begin, r.end, r.samples if counts_samples else r.steps) for r in plan.rates]
    steps = [point for a, b, rate in rates for point in ((a, rate), (b, rate))]
    panels = [_curve("samples/s" if counts_samples else "steps/s", [steps], axis, floor=0.0)]
    if (name := curve_name(plan)) is not None:
        panels.append(_curve(name, _unbroken(plan.logged[name]), axis))
    return panels


def curve_name(plan: Plan) -> str | None:
    """Which of the logged values is drawn: the loss, or what comes first."""
    named = [name for name in plan.logged if "loss" in name.lower()]
    return next(iter([*named, *plan.logged]), None)


def _unbroken(points: Sequence[tuple[float, float | None]]) -> list[Points]:
    """Pieces without a value that is no number."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for t, value in points:
        if value is None or abs(value) > MOST_DRAWN:
            pieces.append([])
        else:
            pieces[-1].append((t, value))
    return [piece for piece in pieces if piece]


def _curve(name: str, pieces: Sequence[Points], axis: _Axis, floor: float | None = None) -> _Panel:
    values = [value for piece in pieces for _, value in piece]
    low = min(values, default=0.0) if floor is None else floor
    high = max(values, default=1.0)
    if high <= low:
        low, high = low - 0.5 * abs(low or 1), low + 0.5 * abs(low or 1)

    def y(value: float) -> float:
        return CURVE_HEIGHT * (1 - (value - low) / (high - low))

    parts = _scale(name, ticks(low, high, 4), y)
    for piece in pieces:
        few = _thinned(piece, MOST_POINTS)
        parts.append(canvas.path([(axis.x(t), y(value)) for t, value in few], "curve"))
    return _Panel(CURVE_HEIGHT, parts)


def _thinned(points: Points, most: int) -> Points:
    width = -(-len(points) // most)
    if width <= 1:
        return points
    groups = [points[i : i + width] for i in range(0, len(points), width)]
    return [(g[len(g) // 2][0], sum(value for _, value in g) / len(g)) for g in groups]


def _scale(name: str, values: Iterable[float], y: Callable[[float], float]) -> list[str]:
    parts = [canvas.label(8, 12, name[:16], "small", name)]
    for value in values:
        at = y(value)
        parts.append(canvas.line(LEFT, at, WIDTH - RIGHT, at, "grid"))
        parts.append(canvas.label(LEFT - 8, at + 4, short(value), "small end"))
    return parts


def _time(axis: _Axis, y: float) -> list[str]:
    return [
        canvas.label(axis.x(t), y + 16, clock(t), "small mid")
        for t in time_ticks(axis.begin, axis.end, 10)
    ]


def _pauses(changes: Iterable[Change]) -> _Panel:
    """What the longest pauses consisted of."""
    known = [(change, change.pause) for change in changes if change.pause is not None]
    longest = sorted(known, key=lambda each: -each[1].seconds)[:MOST_PAUSES]
    rows = sorted(longest, key=lambda each: each[0].t)
    if not rows:
        return _Panel(0.0, [])
    scale = 420.0 / max(max(pause.seconds for _, pause in rows), 1e-3)
    parts = [canvas.label(LEFT, 4, "pauses", "small")]
    x = 470.0
    for number, name in enumerate(rows[0][1].phases):
        parts.append(canvas.rect(x, -5, 9, 9, f"p{number}"))
        parts.append(canvas.label(x + 13, 4, name, "small"))
        x += 28 + 6.5 * len(name)
    for row, (change, pause) in enumerate(rows):
        y = 12 + row * 18.0
        words = f"{clock(change.t)} {change.cause} {change.before} to {change.after}"
        parts.append(canvas.label(LEFT, y + 11, words, "", describe(change)))
        parts.append(canvas.label(462, y + 11, seconds(pause.seconds), "end"))
        x = 470.0
        for number, (name, length) in enumerate(pause.phases.items()):
            if length * scale >= 0.5:
                parts.append(
                    canvas.rect(
                        x, y, length * scale, 13, f"p{number}", f"{name}: {seconds(length)}"
                    )
                )
                x += length * scale
    return _Panel(12 + len(rows) * 18.0 + 12, parts)
