"""Which names a pod can look up, and what they mean: the cluster's DNS as a hosts file. Pure.

A Service's name means the addresses of the pods that it selects: those that are ready, or all that
have one if it publishes them, but none that has ended. This holds for Services with an address of
their own too: there is no proxy here that would serve it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.kubernetes.plane.api import Json

_ALWAYS = "127.0.0.1\tlocalhost\n"


@dataclass(frozen=True)
class Backend:
    """A pod, as far as Services are concerned."""

    namespace: str
    name: str
    labels: Mapping[str, str]
    ip: str
    ready: bool
    going: bool  # being deleted
    hostname: str  # with the subdomain, a name of its own below the Service's
    subdomain: str


@dataclass(frozen=True)
class Service:
    namespace: str
    name: str
    selector: Mapping[str, str]
    unready_too: bool


def backend(pod: Json) -> Backend | None:
    """None for a pod without an address, and for one that has ended."""
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    ip = status.get("podIP", "")
    if not ip or status.get("phase") in ("Succeeded", "Failed"):
        return None
    conditions = {c["type"]: c["status"] for c in status.get("conditions", [])}
    return Backend(
        namespace=meta["namespace"],
        name=meta["name"],
        labels=meta.get("labels", {}),
        ip=ip,
        ready=conditions.get("Ready") == "True",
        going="deletionTimestamp" in meta,
        hostname=spec.get("hostname", ""),
        subdomain=spec.get("subdomain", ""),
    )


def service(manifest: Json) -> Service | None:
    """None for a Service that selects nothing by itself."""
    meta, spec = manifest["metadata"], manifest["spec"]
    selector = spec.get("selector")
    if not selector:
        return None
    unready_too = bool(spec.get("publishNotReadyAddresses"))
    return Service(meta["namespace"], meta["name"], selector, unready_too)


def records(services: Iterable[Service], backends: Iterable[Backend]) -> list[tuple[str, str, str]]:
    """(namespace, name, address), where name is that within the namespace."""
    labelled = defaultdict(list)
    for pod in backends:
        for label in pod.labels.items():
            labelled[pod.namespace, label].append(pod)
    found = []
    for each in services:
        some = next(iter(each.selector.items()))
        for pod in labelled[each.namespace, some]:
            if not _chosen(each, pod):
                continue
            found.append((each.namespace, each.name, pod.ip))
            if pod.hostname and pod.subdomain == each.name:
                found.append((each.namespace, f"{pod.hostname}.{each.name}", pod.ip))
    return sorted(found)


def hosts_file(namespace: str, known: Iterable[tuple[str, str, str]]) -> str:
    """As the pods of a namespace see it, whose own Services have short names too."""
    lines = [_ALWAYS]
    for space, name, ip in known:
        long = f"{name}.{space}"
        short = f"{name} " if space == namespace else ""
        lines.append(f"{ip}\t{long}.svc.cluster.local {long}.svc {long} {short}".rstrip() + "\n")
    return "".join(lines)


def _chosen(service: Service, pod: Backend) -> bool:
    if not service.unready_too and (pod.going or not pod.ready):
        return False
    return all(pod.labels.get(key) == value for key, value in service.selector.items())
