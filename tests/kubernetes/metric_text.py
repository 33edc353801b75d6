"""Metrics in Prometheus's text format, read strictly."""

import re
from collections.abc import Mapping

_SAMPLE = re.compile(r"(?P<name>[a-z_]+)(?:\{(?P<labels>[^}]*)\})? (?P<value>[0-9.]+)")
_LABEL = re.compile(r'([a-z_]+)="([^"]*)"')

Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(text: str) -> Samples:
    """By name and labels; every family has its type and its help before its first sample."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    kinds: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name not in kinds
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            sample = _SAMPLE.fullmatch(line)
            assert sample is not None, line
            name = sample["name"]
            family = name if name in kinds else re.sub("_(bucket|sum|count)$", "", name)
            assert (name in kinds) or kinds[family] == "histogram", line
            labels = frozenset(_LABEL.findall(sample["labels"] or ""))
            assert (name, labels) not in found, line
            found[name, labels] = float(sample["value"])
    return found


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]
