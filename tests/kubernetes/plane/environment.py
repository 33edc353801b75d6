"""What a container is told: environment variables, and the words of its command. Pure.

Values of ConfigMaps and Secrets are looked up through a function, so that this stays arithmetic on
manifests. Not supported, and refused by name: resourceFieldRef.
"""

import base64
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from tests.kubernetes.plane.api import Json

Read = Callable[[str, str], Awaitable[Json | None]]  # (plural, name) in the pod's namespace
_VARIABLE = re.compile(r"\$(?:\$|\(([\w.-]+)\))")
_KEYED = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]$")


class ConfigError(Exception):
    """A manifest asks for something that is not there, or that a process node cannot do."""


@dataclass(frozen=True)
class Facts:
    """What a node knows about a pod besides its manifest."""

    pod_ip: str
    host_ip: str


def field(pod: Json, path: str, facts: Facts) -> str:
    """What a fieldRef means."""
    meta, spec = pod["metadata"], pod["spec"]
    if keyed := _KEYED.match(path):
        return str(meta.get(keyed[1], {}).get(keyed[2], ""))
    plain = {
        "metadata.name": meta["name"],
        "metadata.namespace": meta["namespace"],
        "metadata.uid": meta["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", ""),
        "status.podIP": facts.pod_ip,
        "status.podIPs": facts.pod_ip,
        "status.hostIP": facts.host_ip,
        "metadata.labels": _listed(meta.get("labels", {})),
        "metadata.annotations": _listed(meta.get("annotations", {})),
    }
    if path not in plain:
        raise ConfigError(f"fieldRef {path} is not supported by process nodes")
    return str(plain[path])


def data_of(plural: str, thing: Json) -> dict[str, bytes]:
    """The files that a ConfigMap or Secret holds."""
    data, binary = thing.get("data") or {}, thing.get("binaryData") or {}
    if plural == "secrets":
        return {key: base64.b64decode(value) for key, value in data.items()}
    decoded = {key: base64.b64decode(value) for key, value in binary.items()}
    return {key: value.encode() for key, value in data.items()} | decoded


async def variables(
    container: Json, pod: Json, facts: Facts, base: Mapping[str, str], read: Read
) -> dict[str, str]:
    env = dict(base)
    for source in container.get("envFrom", []):
        env |= await _all_keys(source, read)
    for entry in container.get("env", []):
        value = await _value(entry, pod, facts, read, env)
        if value is not None:
            env[entry["name"]] = value
    return env


def command(container: Json, env: Mapping[str, str]) -> tuple[str, ...]:
    words = [*container.get("command", []), *container.get("args", [])]
    if not container.get("command"):
        raise ConfigError("no command: process nodes have no images, so a container must say it")
    return tuple(expand(word, env) for word in words)


def expand(text: str, env: Mapping[str, str]) -> str:
    """$(NAME) where there is such a variable; $$ is one dollar."""
    return _VARIABLE.sub(lambda m: env.get(m[1], m[0]) if m[1] else "$", text)


async def _value(
    entry: Json, pod: Json, facts: Facts, read: Read, env: Mapping[str, str]
) -> str | None:
    source = entry.get("valueFrom")
    if not source:
        return expand(entry.get("value", ""), env)
    if "fieldRef" in source:
        return field(pod, source["fieldRef"]["fieldPath"], facts)
    for kind, plural in (("configMapKeyRef", "configmaps"), ("secretKeyRef", "secrets")):
        if kind in source:
            return await _one_key(plural, source[kind], read)
    raise ConfigError(f"env {entry['name']}: {', '.join(source)} is not supported by process nodes")


async def _one_key(plural: str, reference: Json, read: Read) -> str | None:
    thing = await read(plural, reference["name"])
    data = data_of(plural, thing) if thing is not None else {}
    if reference["key"] in data:
        return data[reference["key"]].decode()
    if reference.get("optional"):
        return None
    what = "not found" if thing is None else f"has no key {reference['key']}"
    raise ConfigError(f"{plural[:-1]} {reference['name']} {what}")


async def _all_keys(source: Json, read: Read) -> dict[str, str]:
    kind, plural = next(
        (kind, plural)
        for kind, plural in (("configMapRef", "configmaps"), ("secretRef", "secrets"))
        if kind in source
    )
    thing = await read(plural, source[kind]["name"])
    if thing is None and not source[kind].get("optional"):
        raise ConfigError(f"{plural[:-1]} {source[kind]['name']} not found")
    prefix = source.get("prefix", "")
    data = data_of(plural, thing) if thing is not None else {}
    return {prefix + key: value.decode() for key, value in data.items()}


def _listed(pairs: Mapping[str, str]) -> str:
    return "\n".join(f'{key}="{value}"' for key, value in sorted(pairs.items()))
