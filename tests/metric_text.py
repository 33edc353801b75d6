"""Metrics in the text format of Prometheus, read strictly: nothing is guessed."""

import re
from collections.abc import Mapping

_HEAD = re.compile(r"# (?P<what>HELP|TYPE) (?P<name>[a-z][a-z0-9_]*) (?P<text>\S.*)")
_SAMPLE = re.compile(
    r"(?P<name>[a-z][a-z0-9_]*)(?:\{(?P<labels>.*)\})? (?P<value>-?[0-9.]+(?:e[-+][0-9]+)?)"
)
_LABEL = re.compile(r'(?P<name>[a-z][a-z0-9_]*)="(?P<value>(?:[^"\\\n]|\\["\\n])*)"(?:,|$)')
_ESCAPE = re.compile(r'\\(["\\n])')
_PARTS = {
    "counter": ("",),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count"),
    "summary": ("_sum", "_count"),
}

Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(text: str) -> Samples:
    """By name and labels. A family is its help, its type and then its samples, without others
    between them."""
    assert text.endswith("\n")
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    family = kind = ""
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("#"):
            family, kind = _head(line, family, kind)
            continue
        sample = _SAMPLE.fullmatch(line)
        assert sample is not None, line
        name, labels = sample["name"], _labels(sample["labels"])
        assert kind and name in [family + part for part in _PARTS[kind]], line
        assert (name, labels) not in found, line
        found[name, labels] = float(sample["value"])
    kinds(text)
    return found


def _head(line: str, family: str, kind: str) -> tuple[str, str]:
    head = _HEAD.fullmatch(line)
    assert head is not None, line
    if head["what"] == "HELP":
        assert family == "" or kind, f"{family} has no type"
        return head["name"], ""
    assert (head["name"], kind) == (family, ""), f"{line}: it does not follow its help"
    assert head["text"] in _PARTS, line
    return family, head["text"]


def _labels(text: str | None) -> frozenset[tuple[str, str]]:
    found: dict[str, str] = {}
    while text:
        label = _LABEL.match(text)
        assert label is not None, text
        assert label["name"] not in found, text
        found[label["name"]] = _ESCAPE.sub(
            lambda escape: "\n" if escape[1] == "n" else escape[1], label["value"]
        )
        text = text[label.end() :]
    return frozenset(found.items())


def kinds(text: str) -> dict[str, str]:
    """The type of each family; each is there once."""
    found = re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE)
    assert len({name for name, _ in found}) == len(found)
    for name, kind in found:
        assert (kind == "counter") == name.endswith("_total"), name
    return dict(found)


def named(text: str) -> set[str]:
    """Every name that a query may have."""
    return {name + part for name, kind in kinds(text).items() for part in _PARTS[kind]}


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]
