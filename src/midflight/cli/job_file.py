"""A job file: YAML with the fields of a spec, in snake_case or camelCase.

What is read here is the spec as plain values, with its own names; unknown keys are all named, each
with the nearest right one. What else is wrong with the values is found where specs are decoded.
"""

import dataclasses
import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from midflight import durations
from midflight.cli import job_types
from midflight.controller.spec import HIDDEN, Container, Spec, Sync
from midflight.errors import UsageError

_INNER = {"container": Container, "sync": Sync}
_TEXTS = ("env", "environment", "secrets", "labels", "selectors")  # names to texts
_QUANTITIES = ("cpu", "memory", "nproc_per_node")  # texts that look like numbers
_DURATIONS = ("running_timeout", "ttl_after_finished", "max_wait_time")
_HUMP = re.compile(r"(?<=[a-z0-9])([A-Z]+)")


def read(path: str) -> dict[str, Any]:
    found = _load(path)
    if not isinstance(found, dict):
        raise UsageError(
            f"{path}: wanted the fields of a job, such as `name: demo`, got {found!r:.200}"
        )
    return spec_values(found, path, "key")


def spec_values(found: Mapping[Any, Any], where: str, word: str) -> dict[str, Any]:
    """The fields of a spec. `where` they were said, and the word for one of them there."""
    wrong: list[str] = []
    values = _renamed(found, _names(Spec), "", wrong)
    for outer, kind in _INNER.items():
        if isinstance(values.get(outer), dict):
            values[outer] = _renamed(values[outer], _names(kind), f"{outer}.", wrong)
    if wrong:
        raise UsageError(
            f"{where}: unknown {word}{'s' if len(wrong) > 1 else ''} {', '.join(wrong)}"
        )
    return _converted(_with_names(values, where), where)


def _load(path: str) -> object:
    import yaml

    try:
        return yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read the job file {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"the job file {path} is not YAML: {reason}") from None


def _names(kind: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def _renamed(
    values: Mapping[object, Any], known: list[str], prefix: str, wrong: list[str]
) -> dict[str, Any]:
    """With snake_case keys; what is not known is described in `wrong`."""
    renamed: dict[str, Any] = {}
    for key, value in values.items():
        name = _HUMP.sub(lambda hump: f"_{hump[1].lower()}", str(key))
        if name in known:
            renamed[name] = value
        else:
            wrong.append(f"{prefix}{key}{_nearest(name, known, prefix)}")
    return renamed


def _with_names(values: dict[str, Any], where: str) -> dict[str, Any]:
    """What holds names and values does so, or is left out where nothing follows the colon."""
    for name in (*_INNER, *_TEXTS):
        if values.get(name, {}) is None:
            del values[name]
        elif not isinstance(values.get(name, {}), dict):
            wrong = f"{values[name]!r:.200}"
            raise UsageError(f"{where}: {name}: wanted names with values, got {wrong}")
    return values


def _nearest(name: str, known: Iterable[str], prefix: str) -> str:
    places = {each: f"{prefix}{each}" for each in known}
    if not prefix:
        for outer, kind in _INNER.items():
            places.update({each: f"{outer}.{each}" for each in _names(kind) if each not in places})
    near = difflib.get_close_matches(name, places, n=1, cutoff=0.5)
    return f" (did you mean {places[near[0]]}?)" if near else ""


def _converted(values: dict[str, Any], where: str) -> dict[str, Any]:
    if "kind" in values:
        values["kind"] = job_types.to_submit(str(values["kind"]))
    for name in _TEXTS:
        if name in values:
            values[name] = {str(key): _text(item) for key, item in values[name].items()}
    for name in _QUANTITIES:
        if name in values:
            values[name] = _text(values[name])
    for name in _DURATIONS:
        if isinstance(values.get(name), str):
            values[name] = durations.parse(values[name])
    if HIDDEN in values.get("secrets", {}).values():
        raise UsageError(
            f"{where}: its secrets are hidden; take them out and give them with "
            "-e GIT_SYNC_USERNAME=... and -e GIT_SYNC_PASSWORD=..."
        )
    return values


def _text(value: object) -> object:
    """Numbers are texts where only texts can be; `true` is not, since nobody knows which."""
    return str(value) if type(value) in (int, float) else value
