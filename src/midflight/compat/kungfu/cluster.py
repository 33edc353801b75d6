"""A cluster as KungFu's config store holds it: runners and workers, each an address. Pure.

The JSON is KungFu's, with the address as a number under "IPv4". Hosts that have no such number
(IPv6, names) stand under "Host" beside it. A cluster is checked where it comes in; the rules are
KungFu's: no address twice, one runner on a host, and a runner wherever there is a worker.
"""

import ipaddress
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from midflight.errors import UsageError

RUNNER_PORT = 38080
FIRST_PORT, LAST_PORT = 10000, 11000  # of workers, unless a range is given
LARGEST = 10_000  # workers or runners
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?")


@dataclass(frozen=True)
class Address:
    host: str  # an IPv4 or IPv6 address as usually written, or a name
    port: int

    def to_json(self) -> dict[str, Any]:
        try:
            return {"IPv4": int(ipaddress.IPv4Address(self.host)), "Port": self.port}
        except ValueError:
            return {"IPv4": 0, "Port": self.port, "Host": self.host}

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Cluster:
    runners: tuple[Address, ...]
    workers: tuple[Address, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "Runners": [address.to_json() for address in self.runners],
            "Workers": [address.to_json() for address in self.workers],
        }

    def dumps(self) -> str:
        return json.dumps(self.to_json(), separators=(",", ":"))

    @property
    def slots(self) -> dict[str, int]:
        """How many workers each host has, hosts in the order of their first worker."""
        return dict(Counter(worker.host for worker in self.workers))

    def resized(self, size: int, first_port: int = FIRST_PORT) -> "Cluster":
        """With so many workers: the last ones go, new ones come where there are fewest."""
        if size < 1:
            raise UsageError(f"a cluster has at least 1 worker, got {size}")
        workers = self.workers[:size]
        while len(workers) < size:
            workers = (*workers, self._one_more(workers, first_port))
        return replace(self, workers=workers)

    def _one_more(self, workers: tuple[Address, ...], first_port: int) -> Address:
        if not self.runners:
            raise UsageError("a cluster without runners has no place for another worker")
        load = Counter(worker.host for worker in workers)
        host = min((runner.host for runner in self.runners), key=lambda name: load[name])
        taken = {a.port for a in (*workers, *self.runners) if a.host == host}
        port = next(number for number in range(first_port, 65536) if number not in taken)
        return Address(host, port)


def make(slots: Mapping[str, int], size: int, first_port: int = FIRST_PORT) -> Cluster:
    """The cluster of `size` workers that fills these hosts in their order."""
    room = sum(slots.values())
    if size > room:
        raise UsageError(
            f"{size} workers were wanted, the hosts have {room} slots; "
            "add hosts or slots to -H, or lower -np"
        )
    places = [
        Address(host, first_port + number)
        for host, count in slots.items()
        for number in range(count)
    ]
    return checked(
        Cluster(tuple(Address(host, RUNNER_PORT) for host in slots), tuple(places[:size]))
    )


def loads(text: str | bytes) -> Cluster:
    """The cluster that a JSON text describes; UsageError, in one line, if it is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"wanted a cluster as JSON, got no JSON: {error}") from None
    if not isinstance(found, dict):
        raise UsageError('wanted a cluster as JSON, {"Runners":[...],"Workers":[...]}')
    return checked(Cluster(_addresses(found, "Runners"), _addresses(found, "Workers")))


def _addresses(found: dict[str, Any], key: str) -> tuple[Address, ...]:
    listed = found.get(key)
    if listed is None:
        listed = []
    if not isinstance(listed, list) or len(listed) > LARGEST:
        raise UsageError(f"invalid cluster: {key} has to be a list of at most {LARGEST} addresses")
    return tuple(_address(item, f"{key}[{number}]") for number, item in enumerate(listed))


def _address(item: Any, where: str) -> Address:
    if not isinstance(item, dict):
        raise UsageError(f'invalid cluster: {where} has to be {{"IPv4":NUMBER,"Port":NUMBER}}')
    port = item.get("Port")
    if type(port) is not int or not 1 <= port <= 65535:
        raise UsageError(f"invalid cluster: {where} has the port {port!r:.40}, wanted 1 to 65535")
    host = item.get("Host")
    if host:
        return Address(_host(host, where), port)
    number = item.get("IPv4")
    if type(number) is not int or not 0 < number < 1 << 32:
        raise UsageError(
            f"invalid cluster: {where} has the IPv4 {number!r:.40}, wanted an address as a number "
            'from 1 to 4294967295, or a "Host"'
        )
    return Address(str(ipaddress.IPv4Address(number)), port)


def _host(host: Any, where: str) -> str:
    if isinstance(host, str):
        try:
            return str(ipaddress.ip_address(host))
        except ValueError:
            if _NAME.fullmatch(host):
                return host
    raise UsageError(
        f"invalid cluster: {where} has the host {host!r:.80}, wanted an address or a name"
    )


def checked(cluster: Cluster) -> Cluster:
    """The cluster itself, or a UsageError that says which rule it breaks."""
    if twice := _twice((*cluster.runners, *cluster.workers)):
        raise UsageError(f"invalid cluster: the address {twice} is there twice")
    hosts = [runner.host for runner in cluster.runners]
    if twice := _twice(hosts):
        raise UsageError(f"invalid cluster: the host {twice} has two runners, wanted one")
    for worker in cluster.workers:
        if worker.host not in hosts:
            raise UsageError(f"invalid cluster: the worker {worker} has no runner on its host")
    return cluster


def _twice(items: Iterable[object]) -> object | None:
    return next((item for item, count in Counter(items).items() if count > 1), None)
