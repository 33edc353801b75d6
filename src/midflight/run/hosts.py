"""Which hosts a run may use, as users write them: `-H`, a hostfile, a discovery script's lines.

A host is known by the name that was written. `localhost` and `127.0.0.1` are two hosts, though
both are this machine: that is how several hosts are tried out on one.
"""

import re
from pathlib import Path

from midflight.arguments import LARGEST
from midflight.errors import UsageError

Hosts = dict[str, int]  # name to slots, in the order given

_HOST = re.compile(r"(?P<name>[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?)(:(?P<slots>[0-9]{1,9}))?")
_HOSTFILE_LINE = re.compile(r"(?P<name>\S+)\s+slots\s*=\s*(?P<slots>[0-9]{1,9})")


def parse_hosts(text: str, default_slots: int) -> Hosts:
    """`host:slots,host:slots,...`; a host without slots has the default."""
    items = [item.strip() for item in text.split(",")]
    return _collect(items, default_slots, "-H wants HOST:SLOTS,...")


def read_hostfile(path: str, default_slots: int) -> Hosts:
    """One host per line, `host slots=N` or `host:N`; `#` begins a comment."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise UsageError(f"cannot read the hostfile {path}: {reason}") from None
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    items = [_HOSTFILE_LINE.sub(r"\g<name>:\g<slots>", line) for line in lines if line]
    if not items:
        raise UsageError(f"the hostfile {path} names no host; wanted lines like `node1 slots=4`")
    return _collect(items, default_slots, f"hostfile {path}: wanted `HOST slots=N` or `HOST:N`")


def parse_listing(text: str, default_slots: int) -> Hosts:
    """What a discovery script prints: one `host` or `host:slots` per line, maybe none at all."""
    lines = [line.strip() for line in text.splitlines()]
    return _collect([line for line in lines if line], default_slots, "wanted HOST or HOST:SLOTS")


def _collect(items: list[str], default_slots: int, wanted: str) -> Hosts:
    hosts: Hosts = {}
    for item in items:
        match = _HOST.fullmatch(item)
        if match is None:
            raise UsageError(f"{wanted}, got {item!r:.80}")
        name, slots = match["name"], int(match["slots"] or default_slots)
        if not 1 <= slots <= LARGEST:
            raise UsageError(f"{wanted} with 1 to {LARGEST} slots, got {item!r:.80}")
        if name in hosts:
            raise UsageError(f"{wanted}, each host once; {name} came twice")
        hosts[name] = slots
    return hosts
