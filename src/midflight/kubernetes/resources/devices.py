"""Extended resources that are accelerators: how many slots the limits of a container stand for.

A resource either counts devices (a MIG instance is one), or is a share of a device: whatever its
amount, a share is one slot. Other extended resources (network cards, for example) are no slots.
"""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from midflight.errors import UsageError
from midflight.kubernetes.resources import fields
from midflight.quantities import quantity

_COUNTED = (
    "nvidia.com/gpu",
    "nvidia.com/mig-*",
    "amd.com/gpu",
    "huawei.com/Ascend*",
    "aliyun.com/gpu-count",
)
_SHARES = ("aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage")
_MOST = 1_000_000  # more of one resource is a mistake


def is_accelerator(name: str) -> bool:
    return _is_one_of(name, (*_COUNTED, *_SHARES))


def slots(limits: Mapping[str, object], path: str) -> int:
    """Of a container's limits, or of a node's capacity; `path` is where they stand."""
    found = {name: value for name, value in limits.items() if is_accelerator(name)}
    counted = sum(_count(found[name], name, path) for name in found if _is_one_of(name, _COUNTED))
    return counted or int(any(str(value) != "0" for value in found.values()))


def _is_one_of(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _count(value: object, name: str, path: str) -> int:
    at = f'{path}["{name}"]'
    try:
        number = quantity(str(value))
    except UsageError:
        raise fields.wrong(at, "a whole number", value) from None
    if number != int(number) or number > _MOST:
        raise fields.wrong(at, "a whole number of devices", value)
    return int(number)
