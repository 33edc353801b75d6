"""In what two packed states differ, in words for people: pure.

Takes the JSON of two snapshots (see `tree`). Random number generators may differ between members
and are left out; so are the numbers of tensors, whose contents the caller compares.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

RNG, CURSOR = "job.rng", "job.extra"
MOST = 3  # differences that a message names
LONGEST = 60  # characters of a value that are shown
_ABSENT = object()


def name_differences(mine: bytes, theirs: bytes, tensors: Sequence[int] = ()) -> str:
    """`optimizer.param_groups[0].lr is 0.1 here and 0.05 there; ...`

    `tensors`: the numbers, in `mine`, of those whose contents differ.
    """
    ours, others = _read(mine), _read(theirs)
    found = [
        f"{path} is {_shown(here)} here and {_shown(there)} there"
        for path, here, there in _walk("", ours, others)
    ]
    names = name_tensors(mine)
    found += [f"the values of {names.get(number, f'tensor {number}')} differ" for number in tensors]
    if not found:
        return "the order of its entries differs"
    rest = len(found) - MOST
    return "; ".join(found[:MOST]) + (f"; and {rest} more" if rest > 0 else "")


def name_tensors(blob: bytes) -> dict[int, str]:
    """Where in the state each tensor is, by its number."""
    names: dict[int, str] = {}
    for path, number in _tensors("", _read(blob)):
        names.setdefault(number, path)
    return names


def _read(blob: bytes) -> dict[str, Any]:
    tree = json.loads(blob, object_hook=_plain)
    return {name: part for name, part in tree.items() if name != RNG}


def _plain(found: dict[str, Any]) -> Any:
    """Dicts with other keys than strings are packed as pairs; here their keys are made strings."""
    if len(found) == 1:
        ((mark, inner),) = found.items()
        if mark in ("$dict", "$ordered", "$counter"):
            return {str(key): value for key, value in inner}
        if mark in ("$tuple", "$set", "$frozenset"):
            return inner
    return found


def _walk(path: str, here: Any, there: Any) -> Iterator[tuple[str, Any, Any]]:
    if _is_tensor(here) and _is_tensor(there):
        return
    if isinstance(here, dict) and isinstance(there, dict):
        for key in dict.fromkeys((*here, *there)):
            yield from _walk(_step(path, key), here.get(key, _ABSENT), there.get(key, _ABSENT))
    elif isinstance(here, list) and isinstance(there, list) and len(here) == len(there):
        for place, pair in enumerate(zip(here, there, strict=True)):
            yield from _walk(f"{path}[{place}]", *pair)
    elif type(here) is not type(there) or here != there:
        yield path, here, there


def _tensors(path: str, value: Any) -> Iterator[tuple[str, int]]:
    if _is_tensor(value):
        yield path, value["$tensor"]
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _tensors(_step(path, key), item)
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from _tensors(f"{path}[{place}]", item)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"$tensor"}


def _step(path: str, key: str) -> str:
    if key.startswith("$"):  # a mark of the packer's, not a part of the state
        return path
    if not path:
        return "cursor" if key == CURSOR else key
    return f"{path}.{key}" if key.isidentifier() else f"{path}[{key}]"


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "missing"
    text = json.dumps(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
