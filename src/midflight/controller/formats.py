"""The small formats inside flags: devices, claims, folders and files that are mounted.

Without containers most of them have no effect, but a spec that is wrong here would be wrong on a
cluster as well, so it is refused in the same words.
"""

import re

from midflight.errors import UsageError
from midflight.quantities import quantity

_LABEL = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_QUALIFIED = re.compile(rf"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?{_LABEL}")
_VOLUME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]+")


def check_devices(devices: tuple[str, ...]) -> None:
    for device in devices:
        name, equals, value = device.partition("=")
        if not equals or not name or not value or "=" in value:
            raise UsageError(f"invalid device '{device}', refer to amd.com/gpu=1")
        if not _QUALIFIED.fullmatch(name):
            raise UsageError(f"device name '{name}' is not a qualified name")
        if name == "nvidia.com/gpu":
            raise UsageError("please use '--gpus N' instead of '--device nvidia.com/gpu=N'")
        if not is_quantity(value):
            raise UsageError(
                f"device value '{value}' is not a valid quantity, refer to amd.com/gpu=1"
            )


def is_quantity(text: str) -> bool:
    try:
        quantity(text)
    except UsageError:
        return False
    return True


def check_data(data: tuple[str, ...]) -> None:
    """Claims, and the paths at which they are mounted."""
    seen: set[str] = set()
    for item in data:
        claim, colon, path = item.partition(":")
        if not colon or not claim or not path or ":" in path:
            raise UsageError(f"dataset {item} has incorrect format, should like data_name:/data0")
        if claim in seen:
            raise UsageError(f"your PVC name: {claim} is repeated, please check it")
        if not _VOLUME.fullmatch(claim):
            raise UsageError(
                "volume name is too short, names should be at least two alphanumeric characters"
                f", got {claim!r}"
            )
        seen.add(claim)
        _check_path(path)


def check_data_dirs(folders: tuple[str, ...]) -> None:
    for item in folders:
        parts = item.split(":")
        if not 1 <= len(parts) <= 2 or not all(parts):
            raise UsageError(f"invalid DataDir: '{item}'; write HOST or HOST:CONTAINER")
        for path in parts:
            _check_path(path)


def _check_path(path: str) -> None:
    if not path.startswith("/"):
        raise UsageError(f"invalid dataDir: '{path}' must be absolute")
    if not path.strip("/"):
        raise UsageError("invalid specification: dataDir can't be '/'")


def check_config_files(files: tuple[str, ...]) -> None:
    for item in files:
        parts = item.split(":")
        if not 1 <= len(parts) <= 2 or not all(parts):
            raise UsageError(
                "invalid format for assigning config file,it should be "
                f"'--config-file <host_path_file>:<container_path_file>', got {item!r}"
            )
        if not parts[-1].startswith("/"):
            raise UsageError(
                f"the path of file in container must be absolute path, got {parts[-1]!r}"
            )
