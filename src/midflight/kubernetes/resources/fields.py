"""Fields of an object as the API server hands it out: of the right type, or a UsageError with path.

A custom resource's schema leaves pod templates open, so whatever a person wrote may come here. What
is missing and what is null are the same. Only reading is done here; what a field means, and which
values make sense, is for those who ask.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from midflight.errors import UsageError

Object = Mapping[str, Any]
_SHOWN = 60  # characters of what came, in a message


def wrong(path: str, wanted: str, came: object) -> UsageError:
    return UsageError(f"{path} is invalid: wanted {wanted}, got {came!r:.{_SHOWN}}")


def mapping(holder: Object, key: str, path: str) -> Object:
    """`path` is the holder's own; {} if there is nothing."""
    value = holder.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise wrong(join(path, key), "an object", value)
    return value


def objects(holder: Object, key: str, path: str) -> Sequence[Object]:
    found = _list(holder, key, path)
    for number, item in enumerate(found):
        if not isinstance(item, Mapping) or not all(isinstance(name, str) for name in item):
            raise wrong(f"{join(path, key)}[{number}]", "an object", item)
    return found


def texts(holder: Object, key: str, path: str) -> tuple[str, ...]:
    found = _list(holder, key, path)
    for number, item in enumerate(found):
        if not isinstance(item, str):
            raise wrong(f"{join(path, key)}[{number}]", "text", item)
    return tuple(found)


def text(holder: Object, key: str, path: str, default: str = "") -> str:
    value = holder.get(key)
    if value is None:
        return default
    if not isinstance(value, str):
        raise wrong(join(path, key), "text", value)
    return value


def whole(holder: Object, key: str, path: str, default: int | None = None) -> int | None:
    value = holder.get(key)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong(join(path, key), "a whole number", value)
    return value


def truth(holder: Object, key: str, path: str) -> bool | None:
    value = holder.get(key)
    if value is not None and not isinstance(value, bool):
        raise wrong(join(path, key), "true or false", value)
    return value


def pairs(holder: Object, key: str, path: str) -> dict[str, str]:
    """Labels and annotations."""
    found = mapping(holder, key, path)
    return {name: text(found, name, join(path, key)) for name in found}


def join(path: str, key: str) -> str:
    if "/" in key or "." in key:  # a label's or an annotation's name
        return f'{path}["{key}"]'
    return f"{path}.{key}" if path else key


def _list(holder: Object, key: str, path: str) -> Sequence[Any]:
    value = holder.get(key)
    if value is None:
        return ()
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise wrong(join(path, key), "a list", value)
    return value
