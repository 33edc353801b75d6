"""A pod's volumes: folders of this machine, made before its containers and removed after them.

ConfigMaps, Secrets, tokens and facts about the pod are written as the kubelet does it: all files of
a volume change at once, by one rename, and soon after the object does. A path that is mounted by
itself (subPath) stays as it was. Claims are good for volumes on host paths. Tokens are not renewed:
no pod lives that long here.
"""

import asyncio
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.kubernetes.plane.api import ApiError, Json
from tests.kubernetes.plane.environment import ConfigError, Facts, data_of, expand, field
from tests.kubernetes.plane.sandbox import Mount
from tests.kubernetes.plane.sources import Key, Sources

_DEFAULT_MODE = 0o644
_WRITTEN = ("configMap", "secret", "downwardAPI", "projected")


@dataclass(frozen=True)
class File:
    content: bytes
    mode: int


Files = dict[str, File]  # by path below the volume


class Volumes:
    """`folder` is the pod's own; `memory` is one that is kept in memory."""

    def __init__(
        self, pod: Json, facts: Facts, sources: Sources, folder: Path, memory: Path
    ) -> None:
        self._pod = pod
        self._facts = facts
        self._sources = sources
        self._folder = folder
        self._memory = memory
        self._places: dict[str, Path] = {}
        self._tokens: dict[str, bytes] = {}
        self._one_at_a_time = asyncio.Lock()
        self._following: dict[Key, Callable[[], None]] = {}

    async def prepare(self, changed: Callable[[], None]) -> None:
        """Raises ConfigError while something is missing; `changed` tells of later changes."""
        for volume in self._pod["spec"].get("volumes", []):
            self._places[volume["name"]] = await self._place(volume, changed)

    async def refresh(self, pod: Json) -> None:
        """Writes again what has changed."""
        self._pod = pod
        async with self._one_at_a_time:  # so that the last one to write has read last
            for volume in pod["spec"].get("volumes", []):
                if _kind(volume) in _WRITTEN and volume["name"] in self._places:
                    write_all(self._places[volume["name"]], await self._files(volume, None))

    def close(self) -> None:
        for stop in self._following.values():
            stop()
        self._following.clear()

    def mounts(self, container: Json, env: Mapping[str, str]) -> list[Mount]:
        kinds = {v["name"]: _kind(v) for v in self._pod["spec"].get("volumes", [])}
        found = []
        for wanted in container.get("volumeMounts", []):
            source = self._places[wanted["name"]]
            below = expand(wanted.get("subPathExpr", ""), env) or wanted.get("subPath", "")
            written = kinds[wanted["name"]] in _WRITTEN
            if below:
                source = _below(source, below, make=not written)
            read_only = bool(wanted.get("readOnly")) or written
            found.append(Mount(source, wanted["mountPath"], read_only))
        return sorted(found, key=lambda mount: mount.target.count("/"))  # outer ones first

    async def _place(self, volume: Json, changed: Callable[[], None]) -> Path:
        kind, name = _kind(volume), str(volume["name"])
        own = self._folder / name
        if kind == "hostPath":
            return _host_path(volume["hostPath"])
        if kind == "persistentVolumeClaim":
            return await self._claimed(volume[kind]["claimName"])
        if kind == "emptyDir":
            memory = (volume["emptyDir"] or {}).get("medium") == "Memory"
            own = self._memory / name if memory else own
        elif kind not in _WRITTEN:
            raise ConfigError(f"volume {name}: process nodes have no {kind}")
        own.mkdir(parents=True, exist_ok=True)
        if kind in _WRITTEN:
            write_all(own, await self._files(volume, changed))
        else:
            own.chmod(0o777)
        return own

    async def _claimed(self, name: str) -> Path:
        namespace = self._pod["metadata"]["namespace"]
        claim = await self._sources.read(("persistentvolumeclaims", namespace, name))
        if claim is None or claim.get("status", {}).get("phase") != "Bound":
            raise ConfigError(f"claim {name} is not bound")
        path = f"/api/v1/persistentvolumes/{claim['spec']['volumeName']}"
        spec = (await self._sources.api.persist("GET", path))["spec"]
        if "hostPath" in spec:
            return _host_path(spec["hostPath"])
        if "local" in spec:
            return _host_path({"path": spec["local"]["path"], "type": "Directory"})
        raise ConfigError(f"claim {name}: process nodes have volumes on host paths only")

    # --- what is written --------------------------------------------------------------------------

    async def _files(self, volume: Json, changed: Callable[[], None] | None) -> Files:
        kind = _kind(volume)
        said = volume[kind]
        mode = said.get("defaultMode", _DEFAULT_MODE)
        parts = said["sources"] if kind == "projected" else [{kind: said}]
        files: Files = {}
        for part in parts:
            files |= await self._part(volume["name"], part, mode, changed)
        return files

    async def _part(
        self, volume: str, part: Json, mode: int, changed: Callable[[], None] | None
    ) -> Files:
        if "downwardAPI" in part:
            items = part["downwardAPI"].get("items", [])
            return {i["path"]: File(self._fact(i), i.get("mode", mode)) for i in items}
        if "serviceAccountToken" in part:
            said = part["serviceAccountToken"]
            return {said["path"]: File(await self._token(volume, said), mode)}
        for kind, plural in (("configMap", "configmaps"), ("secret", "secrets")):
            if kind in part:
                name = part[kind].get("name") or part[kind]["secretName"]
                return await self._keys((plural, name), part[kind], mode, changed)
        raise ConfigError(f"volume {volume}: process nodes cannot project {', '.join(part)}")

    def _fact(self, item: Json) -> bytes:
        if "fieldRef" not in item:
            raise ConfigError("downwardAPI: process nodes know fieldRef only")
        return field(self._pod, item["fieldRef"]["fieldPath"], self._facts).encode()

    async def _token(self, volume: str, said: Json) -> bytes:
        if (known := self._tokens.get(volume)) is not None:
            return known
        meta, spec = self._pod["metadata"], self._pod["spec"]
        account = spec.get("serviceAccountName", "default")
        bound = {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]}
        wish: Json = {"boundObjectRef": bound}
        wish["expirationSeconds"] = said.get("expirationSeconds", 3600)
        wish["audiences"] = [said["audience"]] if said.get("audience") else []
        path = f"/api/v1/namespaces/{meta['namespace']}/serviceaccounts/{account}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": wish}
        try:
            answer = await self._sources.api.persist("POST", path, body)
        except ApiError as error:
            raise ConfigError(f"no token for {account}: {error.message}") from error
        self._tokens[volume] = str(answer["status"]["token"]).encode()
        return self._tokens[volume]

    async def _keys(
        self, what: tuple[str, str], said: Json, mode: int, changed: Callable[[], None] | None
    ) -> Files:
        plural, name = what
        key = (plural, self._pod["metadata"]["namespace"], name)
        thing = await self._sources.read(key)
        if changed is not None and key not in self._following:
            self._following[key] = self._sources.follow(key, changed)
        if thing is None and not said.get("optional"):
            raise ConfigError(f'{plural[:-1]} "{name}" not found')
        data = data_of(plural, thing) if thing is not None else {}
        if "items" not in said:
            return {path: File(content, mode) for path, content in data.items()}
        missing = [item["key"] for item in said["items"] if item["key"] not in data]
        if missing and not said.get("optional"):
            raise ConfigError(f"{plural[:-1]} {name} has no key {missing[0]}")
        chosen = [item for item in said["items"] if item["key"] in data]
        return {i["path"]: File(data[i["key"]], i.get("mode", mode)) for i in chosen}


def write_all(folder: Path, files: Files) -> None:
    """Every file is a link through `..data`, which is itself a link: renaming that changes all."""
    current = folder / "..data"
    if current.exists() and _read_all(current) == files:
        return
    old = current.resolve() if current.exists() else None
    fresh = folder / f"..{os.urandom(6).hex()}"
    fresh.mkdir()
    for path, file in files.items():
        place = fresh / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(file.content)
        place.chmod(file.mode)
    link = folder / "..data_new"
    link.symlink_to(fresh.name)
    link.rename(current)
    tops = {Path(path).parts[0] for path in files}
    for name in tops - {entry.name for entry in folder.iterdir()}:
        (folder / name).symlink_to(f"..data/{name}")
    for entry in list(folder.iterdir()):
        if not entry.name.startswith("..") and entry.name not in tops:
            entry.unlink()
    if old is not None:
        shutil.rmtree(old)


def _read_all(folder: Path) -> Files:
    return {
        str(path.relative_to(folder)): File(path.read_bytes(), path.stat().st_mode & 0o7777)
        for path in folder.rglob("*")
        if path.is_file()
    }


def _kind(volume: Json) -> str:
    return next(key for key in volume if key != "name")


def _host_path(said: Json) -> Path:
    path, kind = Path(said["path"]), said.get("type", "")
    if kind == "FileOrCreate" and not path.exists():
        path.touch()
    elif kind in ("", "DirectoryOrCreate") and not path.exists():
        path.mkdir(parents=True)
    if not path.exists():
        raise ConfigError(f"host path {path} is not there")
    return path


def _below(source: Path, path: str, make: bool) -> Path:
    if Path(path).is_absolute() or ".." in Path(path).parts:
        raise ConfigError(f"subPath {path} leaves its volume")
    place = source / path
    if not place.exists():
        if not make:
            raise ConfigError(f"subPath {path} is not in its volume")
        place.mkdir(parents=True)
    return place.resolve()
