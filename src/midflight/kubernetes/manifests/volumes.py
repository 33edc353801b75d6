"""What is mounted in a job's pods: claims, folders of the host, files, shared memory, fetched code.

Files travel in ConfigMaps, one for each folder they are to lie in, and are mounted one by one, so
that whatever the image has beside them stays to be seen. Two things at one path are refused.
"""

import hashlib
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from midflight.controller.spec import Spec
from midflight.errors import UsageError
from midflight.kubernetes import names
from midflight.kubernetes.manifests.flags import object_name

WORKING_DIR = "/root"  # where nothing was said
SHARE_MEMORY = "2Gi"
LARGEST = 1024 * 1024  # bytes that a ConfigMap holds
_KEY = re.compile(r"[-._A-Za-z0-9]{1,253}")


@dataclass(frozen=True)
class Volume:
    name: str
    source: Mapping[str, Any]
    mounts: tuple[Mapping[str, Any], ...]


def working_dir(spec: Spec) -> str:
    return spec.working_dir or WORKING_DIR


def volumes(spec: Spec) -> list[Volume]:
    """Of every pod of the job."""
    memory = {"medium": "Memory", "sizeLimit": spec.container.share_memory or SHARE_MEMORY}
    found = [
        *data_volumes(spec),
        *_file_volumes(spec),
        _at("dshm", {"emptyDir": memory}, "/dev/shm"),
    ]
    if spec.sync is not None:
        found.append(_at("code-sync", {"emptyDir": {}}, posixpath.join(working_dir(spec), "code")))
    _check_paths(found)
    return found


def data_volumes(spec: Spec) -> list[Volume]:
    """Claims and folders of the host."""
    claims = (item.partition(":") for item in spec.container.data)
    folders = (item.partition(":") for item in spec.container.data_dirs)
    return [
        *(
            _at(
                f"data-{number}",
                {"persistentVolumeClaim": {"claimName": object_name("--data", claim)}},
                path,
            )
            for number, (claim, _, path) in enumerate(claims)
        ),
        *(
            _at(f"training-data-{number}", {"hostPath": {"path": host}}, path or host)
            for number, (host, _, path) in enumerate(folders)
        ),
    ]


def config_maps(spec: Spec, files: Mapping[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Names and data. `files` holds what is in each file, by the path that was given."""
    for folder, listed in _by_folder(spec).items():
        data = {}
        for name, host in listed.items():
            if host not in files:
                raise UsageError(f"--config-file {host}: there is no such file to read")
            data[_key(name)] = files[host]
        size = sum(len(text.encode()) for text in data.values())
        if size > LARGEST:
            raise UsageError(
                f"--config-file: the files for {folder} have {size} bytes, and a ConfigMap holds "
                f"{LARGEST}; put them on a volume (--data)"
            )
        yield _map_name(spec, folder), data


def _file_volumes(spec: Spec) -> list[Volume]:
    found = []
    for folder, listed in _by_folder(spec).items():
        name = _map_name(spec, folder)
        items = [{"key": _key(file), "path": file} for file in listed]
        mounts = tuple(
            {"mountPath": posixpath.join(folder, file), "subPath": file, "readOnly": True}
            for file in listed
        )
        volume = f"config-{name.rpartition('-')[2]}"
        found.append(Volume(volume, {"configMap": {"name": name, "items": items}}, mounts))
    return found


def _by_folder(spec: Spec) -> dict[str, dict[str, str]]:
    """Files with the host's paths of them, by the folders they are to lie in."""
    found: dict[str, dict[str, str]] = {}
    for item in spec.container.config_files:
        host, _, path = item.partition(":")
        folder, name = posixpath.split(posixpath.normpath(path or host))
        if name in found.setdefault(folder, {}):
            raise UsageError(f"two things are to be mounted at {posixpath.join(folder, name)}")
        if not name:
            raise UsageError(f"--config-file {item}: wanted the path of a file in the container")
        found[folder][name] = host
    return found


def _map_name(spec: Spec, folder: str) -> str:
    digest = hashlib.md5(folder.encode(), usedforsecurity=False).hexdigest()
    return f"{spec.name}-{digest[:15]}"


def _key(file: str) -> str:
    """Any name is a file's, and few are a ConfigMap's."""
    if _KEY.fullmatch(file) and not file.startswith(".."):
        return file
    return hashlib.md5(file.encode(), usedforsecurity=False).hexdigest()


def _at(name: str, source: Mapping[str, Any], path: str) -> Volume:
    return Volume(name, source, ({"mountPath": path},))


def _check_paths(found: Iterable[Volume]) -> None:
    seen = {names.EDL, names.TOKEN_DIR, names.JOB_DIR, names.RUNTIME_DIR}
    for mount in (mount for volume in found for mount in volume.mounts):
        path = posixpath.normpath(mount["mountPath"])
        if path in seen:
            raise UsageError(f"two things are to be mounted at {path}")
        seen.add(path)
