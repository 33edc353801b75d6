"""The one image of a node with real containers: a static busybox, and what holds a pod open.

No registry is needed: it is written as an archive that containerd imports. It has no user but
root's number, no Python and no library: `mounts` says which folders of this machine a pod needs for
this very interpreter, with everything it can import, to run in it.
"""

import hashlib
import io
import json
import os
import platform
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.kubernetes.plane.real_parts import Parts

NAME = "midflight.test/small:1"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_ROOT = Path(__file__).resolve().parents[3]
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")


def write(parts: Parts, archive: Path) -> None:
    """In the format of `docker save`."""
    layer = _layer(parts)
    digest = hashlib.sha256(layer).hexdigest()
    path = f"{sys.prefix}/bin:/bin"  # the first is there where `mounts` are
    config = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Env": [f"PATH={path}"], "Entrypoint": ["/pause", *_pause_words(parts)]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "history": [{"created_by": "tests"}],
    }
    description = json.dumps(config).encode()
    named = f"{hashlib.sha256(description).hexdigest()}.json"
    layer_name = f"{digest}/layer.tar"
    manifest = [{"Config": named, "RepoTags": [NAME], "Layers": [layer_name]}]
    with tarfile.open(archive, "w") as whole:
        _add(whole, named, description)
        _add(whole, layer_name, layer)
        _add(whole, "manifest.json", json.dumps(manifest).encode())


def mounts() -> list[str]:
    """Folders of this machine, none within another, with which `python3` runs as it does here."""
    libraries = [path for path in _LIBRARIES if not os.path.islink(path) and os.path.isdir(path)]
    wanted = {*libraries, sys.base_prefix, sys.prefix, str(_ROOT)}
    return sorted(
        path
        for path in wanted
        if not any(Path(path).is_relative_to(other) for other in wanted - {path})
    )


def _layer(parts: Parts) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w", format=tarfile.GNU_FORMAT) as layer:
        for folder in ("bin", "etc", "usr", "root"):
            _add_folder(layer, folder, 0o755)
        _add_folder(layer, "tmp", 0o1777)
        _add(layer, "pause", parts.pause.read_bytes(), 0o755)
        _add(layer, "bin/busybox", (parts.folder / "busybox").read_bytes(), 0o755)
        for name in _applets(parts):
            _add_link(layer, f"bin/{name}", "busybox")
        for path in _LIBRARIES:
            if os.path.islink(path):  # /lib is usr/lib, where / and /usr are one
                _add_link(layer, path.lstrip("/"), os.readlink(path))
    return held.getvalue()


def _applets(parts: Parts) -> list[str]:
    listed = subprocess.run(
        [str(parts.folder / "busybox"), "--list"], capture_output=True, text=True, check=True
    )
    return [name for name in listed.stdout.split() if name != "busybox"]


def _pause_words(parts: Parts) -> list[str]:
    return ["sleep", "2147483647"] if parts.pause.name == "busybox" else []


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def _add_folder(archive: tarfile.TarFile, name: str, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    archive.addfile(entry)


def _add_link(archive: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, target, 0o777
    archive.addfile(entry)
