"""What `--cpu` and `--memory` come to on this machine, and what they do not.

With cgroup v2, and a group that this user may write to above the server's own, each instance gets
a group with both limits. Otherwise memory is limited for each process alone (RLIMIT_DATA), and
CPU not at all; a note says so. A quantity that cannot be read limits nothing: the spec was
checked before.
"""

import contextlib
import os
import re
from pathlib import Path
from typing import Any

from midflight.errors import UsageError
from midflight.quantities import quantity

_MOUNTS = Path("/proc/mounts")
_OWN_GROUP = Path("/proc/self/cgroup")
_CPU_PERIOD = 100_000  # microseconds
NO_LIMITS: dict[str, Any] = {"memory": None, "cpus": None, "cgroup": ""}


def limit_of(text: str) -> float | None:
    """None for no limit, and for what is no quantity."""
    try:
        return quantity(text) or None if text.strip() else None
    except UsageError:
        return None


def plan_limits(
    cpu: str, memory: str, instance: str, above: Path | None = None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Limits for plan.json, and a note for each that is not kept, or not wholly.

    `instance` has to be a name that no other instance on this machine has; `above` is the group to
    make its group in, by default the one that `writable_group` finds.
    """
    cpus, most = limit_of(cpu), limit_of(memory)
    limits = {**NO_LIMITS, "cpus": cpus, "memory": None if most is None else int(most)}
    wanted = {"cpu": cpus, "memory": most}
    controllers = {name for name, value in wanted.items() if value is not None}
    if not controllers:
        return limits, ()
    above = above or writable_group(controllers)
    if above is not None:
        return {**limits, "cgroup": str(above / f"midflight-{_name(instance)}")}, ()
    lacking = "no cgroup v2 that this user may write to"
    notes = []
    if cpus is not None:
        notes.append(f"--cpu {cpu} is not enforced: {lacking}")
    if most is not None:
        notes.append(f"--memory {memory} is enforced for each process alone: {lacking}")
    return limits, tuple(notes)


def writable_group(
    controllers: set[str], mounts: Path = _MOUNTS, own: Path = _OWN_GROUP
) -> Path | None:
    """The nearest group above this process in which limited groups may be made."""
    root = _mount(mounts)
    if root is None:
        return None
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return None
    path = next((line[3:] for line in lines if line.startswith("0::/")), None)
    if path is None:
        return None
    here = root / path.lstrip("/")
    for group in (here, *here.parents):
        if _may_hold(group, controllers):
            return group
        if group == root:
            return None
    return None


def make_cgroup(limits: dict[str, Any]) -> None:
    """OSError if it cannot be made. Harmless if it is there already."""
    if not limits["cgroup"]:
        return
    group = Path(limits["cgroup"])
    group.mkdir(exist_ok=True)
    if limits["memory"] is not None:
        (group / "memory.max").write_text(str(limits["memory"]))
        for name, value in (("memory.swap.max", "0"), ("memory.oom.group", "1")):
            with contextlib.suppress(OSError):  # not every kernel has them
                (group / name).write_text(value)
    if limits["cpus"] is not None:
        quota = max(1000, round(limits["cpus"] * _CPU_PERIOD))
        (group / "cpu.max").write_text(f"{quota} {_CPU_PERIOD}")


def remove_cgroup(path: str) -> bool:
    """Whether it is gone. The kernel refuses as long as somebody is in it."""
    if not path:
        return True
    with contextlib.suppress(OSError):
        Path(path).rmdir()
    return not Path(path).exists()


def ran_out_of_memory(path: str) -> bool:
    try:
        lines = (Path(path) / "memory.events").read_text().splitlines() if path else []
    except OSError:
        return False
    return any(line.startswith("oom_kill ") and line != "oom_kill 0" for line in lines)


def _mount(mounts: Path) -> Path | None:
    try:
        fields = [line.split() for line in mounts.read_text().splitlines()]
    except OSError:
        return None
    return next((Path(f[1]) for f in fields if len(f) > 2 and f[2] == "cgroup2"), None)


def _may_hold(group: Path, controllers: set[str]) -> bool:
    try:
        enabled = set((group / "cgroup.subtree_control").read_text().split())
    except OSError:
        return False
    writable = os.access(group, os.W_OK) and os.access(group / "cgroup.procs", os.W_OK)
    return writable and controllers <= enabled


def _name(instance: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "-", instance)
