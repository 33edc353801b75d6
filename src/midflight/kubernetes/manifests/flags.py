"""The small formats inside flags that only a cluster gives a meaning to: labels, tolerations, text.

What Kubernetes would refuse only when it makes the first pod is refused here, in one line that
names the flag, while somebody still looks. `verbatim` is for text that must reach a process as it
was written, since Kubernetes replaces `$(NAME)` in commands and in values of variables.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from midflight.errors import UsageError
from midflight.kubernetes import names

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
OPERATORS = ("Equal", "Exists")
_WORD = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DOMAIN = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
_NAME = re.compile(rf"(?:({_DOMAIN})/)?{_WORD}")
_VALUE = re.compile(rf"(?:{_WORD})?")
_OBJECT = re.compile(_DOMAIN)
_REPLACED = re.compile(r"\$\$|\$\([-._A-Za-z0-9]+\)")
_SPECIAL = re.compile(r"\$(?=[$(])")
_LONGEST_OBJECT = 253


def verbatim(text: str) -> str:
    """Written so that a container gets `text`; the same where Kubernetes would change nothing."""
    return _SPECIAL.sub("$$", text) if _REPLACED.search(text) else text


def pairs(flag: str, items: Iterable[str]) -> dict[str, str]:
    """NAME=VALUE, with names as labels and annotations have them."""
    found: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals:
            raise UsageError(f"{flag} is invalid: wanted NAME=VALUE, got {item!r}")
        _check_name(flag, name)
        found[name] = value
    return found


def labels(flag: str, found: Mapping[str, str]) -> dict[str, str]:
    for name, value in found.items():
        _check_name(flag, name)
        if not _VALUE.fullmatch(value):
            raise UsageError(
                f"{flag} is invalid: the value of {name} must be at most 63 letters, digits, '-', "
                f"'_' or '.', with a letter or digit at either end, got {value!r}"
            )
    return dict(found)


def own_labels(flag: str, found: Mapping[str, str]) -> dict[str, str]:
    """Labels that a user gives to objects, on which Midflight relies for its own."""
    for name in found:
        if name == names.MANAGED_BY or name.startswith(f"{names.OURS}/"):
            raise UsageError(f"{flag} is invalid: {name} is Midflight's own, choose another name")
    return labels(flag, found)


def object_name(flag: str, name: str) -> str:
    """Of a claim, a Secret, a priority class."""
    if len(name) > _LONGEST_OBJECT or not _OBJECT.fullmatch(name):
        raise UsageError(
            f"{flag} is invalid: names on a cluster are made of lower case letters, digits, '-' "
            f"and '.', got {name!r}"
        )
    return name


def toleration(text: str) -> dict[str, Any]:
    """`all`, or KEY[=VALUE][:EFFECT[,OPERATOR]]; newer Arenas write :OPERATOR[:SECONDS]."""
    if text == "all":
        return {"operator": "Exists"}
    first, *rest = text.replace(",", ":").split(":")
    key, equals, value = first.partition("=")
    effect, operator, seconds = (*rest, "", "", "")[:3]
    operator = operator or ("Equal" if equals else "Exists")
    if (
        len(rest) > 3
        or not _NAME.fullmatch(key)
        or not _VALUE.fullmatch(value)
        or effect not in ("", *EFFECTS)
        or operator not in OPERATORS
        or (operator == "Exists" and value)
    ):
        raise _no_toleration(text)
    found = {"key": key, "operator": operator, "value": value, "effect": effect}
    made: dict[str, Any] = {name: part for name, part in found.items() if part}
    return made | ({"tolerationSeconds": _seconds(text, effect, seconds)} if seconds else {})


def _seconds(text: str, effect: str, seconds: str) -> int:
    if effect != "NoExecute" or not seconds.isdecimal():
        raise _no_toleration(text)
    return int(seconds)


def _no_toleration(text: str) -> UsageError:
    return UsageError(
        f"--toleration is invalid: wanted all or KEY=VALUE:EFFECT,OPERATOR with an effect of "
        f"{', '.join(EFFECTS)} and an operator of Equal or Exists (without a value), got {text!r}"
    )


def _check_name(flag: str, name: str) -> None:
    found = _NAME.fullmatch(name)
    if found is None or len(found.group(1) or "") > _LONGEST_OBJECT:
        raise UsageError(
            f"{flag} is invalid: {name!r} is not a name such as example or example.org/name"
        )
