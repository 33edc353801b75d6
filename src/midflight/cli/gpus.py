"""How busy the devices of a job's instances are, for those who show it."""

from collections.abc import Iterable, Mapping

from midflight.client import Client
from midflight.protocol.views import GpuView, InstanceView

Usage = Mapping[tuple[str, int], GpuView]  # by node and index
_GIB = 1 << 30


def usage(client: Client, instances: Iterable[InstanceView]) -> Usage:
    """Of the nodes on which instances hold devices; what is not known is left out."""
    nodes = sorted({each["node"] for each in instances if each["devices"]})
    return {(node, gpu["index"]): gpu for node in nodes for gpu in client.gpus(node)}


def duty(each: InstanceView, found: Usage) -> str:
    """In percent, one for each device."""
    gpus = _of(each, found)
    return ",".join(f"{gpu['dutyCycle']}%" for gpu in gpus) or "N/A"


def memory(each: InstanceView, found: Usage) -> str:
    """Used and total of all its devices together."""
    gpus = _of(each, found)
    if not gpus:
        return "N/A"
    used, total = (sum(gpu[key] for gpu in gpus) for key in ("memoryUsed", "memoryTotal"))
    return f"{used / _GIB:.1f}GiB/{total / _GIB:.1f}GiB"


def _of(each: InstanceView, found: Usage) -> list[GpuView]:
    places = [(each["node"], index) for index in each["devices"]]
    return [found[place] for place in places if place in found]
