"""The text format that Prometheus reads: families of samples, each with its help and its type.

All is pure. A family may have no samples: its head says that the metric exists. Values of labels
are escaped here, and only here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Labels = Mapping[str, str]


def head(name: str, kind: str, about: str) -> Iterator[str]:
    """`kind`: counter, gauge, histogram or summary."""
    yield f"# HELP {name} {about}."
    yield f"# TYPE {name} {kind}"


def single(name: str, kind: str, about: str, value: float) -> Iterator[str]:
    """A family of one sample without labels."""
    yield from family(name, kind, about, [({}, value)])


def family(
    name: str, kind: str, about: str, samples: Iterable[tuple[Labels, float]]
) -> Iterator[str]:
    yield from head(name, kind, about)
    for labels, value in samples:
        yield sample(name, labels, value)


def summary(name: str, about: str, samples: Iterable[tuple[Labels, int, float]]) -> Iterator[str]:
    """How often something was observed, and the sum of what was; without quantiles."""
    yield from head(name, "summary", about)
    for labels, count, total in samples:
        yield sample(f"{name}_sum", labels, total)
        yield sample(f"{name}_count", labels, count)


def sample(name: str, labels: Labels, value: float) -> str:
    said = label_text(tuple(labels), tuple(labels.values()))
    return f"{name}{{{said}}} {value}" if said else f"{name} {value}"


def label_text(names: Sequence[str], values: Sequence[str]) -> str:
    """Without the braces."""
    pairs = zip(names, values, strict=True)
    return ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in pairs)
