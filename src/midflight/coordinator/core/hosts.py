"""Where members can go: free slots, and the cool-down of hosts that failed.

A host that failed is avoided for a while that doubles with each failure, up to a maximum, and is
used again afterwards, always. A host that has been fine since its last cool-down for as long as
the maximum starts over, and so does one that comes back at another address: pods do, and are other
machines then.
"""

from collections.abc import Iterable
from dataclasses import replace

from midflight.coordinator.core.draft import Draft
from midflight.coordinator.core.state import HostState, MemberState, Stage, State

SAME_FAILURE = 1.0  # seconds; members of a host that die together are one failure


def usable(host: HostState, state: State, now: float) -> bool:
    there = host.connected and now - host.heard_at <= state.spec.lease
    return there and not host.leaving and not host.unlisted and host.cooling_until <= now


def room_for_all(state: State, now: float) -> int:
    """How many members there could be if all were started anew.

    A host that has hung up is counted with the members it has: it dials again, or is lost soon.
    """
    hosts = [state.hosts[member.host] for member in state.members.values()]
    here = [h for h in hosts if not (h.leaving or h.unlisted or h.cooling_until > now)]
    return len(free_slots(state, now)) + len(here)


def free_slots(state: State, now: float) -> list[tuple[str, int]]:
    """(host, slot) pairs that can be given out, hosts in the order in which they were written.

    Others follow in the order in which they came; or all in that of their names, if the job wants
    it so. A host with N slots has N members at most, whichever slots they are in.
    """
    found = []
    in_use: dict[str, set[int]] = {}
    for member in state.members.values():
        in_use.setdefault(member.host, set()).add(member.slot)
    for host in _in_order(state):
        if usable(host, state, now):
            taken = in_use.get(host.name, set())
            free = [slot for slot in range(host.slots) if slot not in taken]
            found += [(host.name, slot) for slot in free[: max(0, host.slots - len(taken))]]
    return found


def _in_order(state: State) -> list[HostState]:
    known = list(state.hosts.values())
    if state.spec.dialect.hosts_by_name:
        return sorted(known, key=lambda host: host.name)
    places = {name: place for place, name in enumerate(state.spec.order)}
    return sorted(known, key=lambda host: places.get(host.name, len(places)))


def all_listed_are_there(state: State, now: float) -> bool:
    """Whether no host that discovery names has still to join."""
    known = state.hosts
    return state.listed is not None and all(
        name in known and usable(known[name], state, now) for name in state.listed
    )


def all_cool_until(state: State, moment: float) -> bool:
    """Whether nobody can be started before then: the hosts are fixed, and all of them failed."""
    named = [state.hosts.get(name) for name in state.spec.order]
    fixed = state.listed is None and bool(named)
    return fixed and all(host and host.connected and host.cooling_until > moment for host in named)


def describe_capacity(state: State, now: float) -> str:
    """One line about where members could be, for errors and `status`."""
    if not state.hosts:
        return "no host has joined"
    parts = []
    for host in state.hosts.values():
        used = sum(member.host == host.name for member in state.members.values())
        note = ""
        if not host.connected or now - host.heard_at > state.spec.lease:
            note = ", not connected"
        elif host.leaving or host.unlisted:
            note = ", leaving"
        elif host.cooling_until > now:
            note = f", cooling down for {host.cooling_until - now:.0f} s"
        parts.append(f"{host.name} {used}/{host.slots} slots used{note}")
    return "; ".join(parts)


def blame(draft: Draft, lost: Iterable[MemberState]) -> None:
    """Their hosts failed; but not one that has come in the place of the one they were on."""
    for name, address in dict.fromkeys((member.host, member.address) for member in lost):
        host = draft.state.hosts.get(name)
        if host is not None and host.address == address:
            cool_down(draft, name)


def cool_down(draft: Draft, name: str) -> float:
    """Avoid a host that failed; returns for how long."""
    host = draft.state.hosts.get(name)
    if host is None:
        return 0.0
    spec = draft.state.spec
    if host.failures and draft.now - host.failed_at < SAME_FAILURE:
        return host.cooling_until - draft.now
    calm = draft.now - host.cooling_until > spec.cooldown_max and host.failures > 0
    failures = 0 if calm else host.failures
    pause = min(spec.cooldown_max, spec.cooldown_min * 2.0 ** min(failures, 30))
    until = draft.now + pause
    draft.set_host(name, failures=failures + 1, failed_at=draft.now, cooling_until=until)
    return pause


def joined(draft: Draft, name: str, slots: int, address: str, door: str = "") -> None:
    host = draft.state.hosts.get(name) or HostState(name, slots)
    if address != host.address:  # another machine of that name, which has done nothing yet
        host = replace(host, failures=0, failed_at=0.0, cooling_until=0.0)
    fresh = replace(
        host,
        slots=slots,
        address=address,
        door=door,
        connected=True,
        came_at=host.came_at if host.connected or host.awaited else draft.now,
        awaited=False,
        heard_at=draft.now,
        leaving=False,
        notice_until=host.notice_until if host.unlisted else None,
    )
    draft.set(hosts={**draft.state.hosts, name: fresh})
    if host.awaited:  # its members need a moment to come back as well
        here = [member.name for member in draft.state.members.values() if member.host == name]
        draft.set_members(here, heard_at=draft.now)
    _want_more(draft)


def _want_more(draft: Draft) -> None:
    """Some jobs want all the slots that there are when hosts come, or have got more."""
    spec = draft.state.spec
    if spec.dialect.takes_all_slots:
        there = [h for h in draft.state.hosts.values() if h.connected and not h.unlisted]
        slots = sum(host.slots for host in there if not host.leaving)
        draft.set(wanted=min(spec.max_np, max(draft.state.wanted, slots)))


def listed(draft: Draft, slots: dict[str, int]) -> None:
    """Discovery says which hosts there are, and how many members each can take."""
    draft.set(listed=frozenset(slots))
    larger = any(slots.get(name, 0) > host.slots for name, host in draft.state.hosts.items())
    until = draft.now + draft.state.spec.grace
    for name, host in tuple(draft.state.hosts.items()):
        if name not in slots:
            if not host.unlisted:
                ends = until if host.notice_until is None else min(until, host.notice_until)
                draft.set_host(name, unlisted=True, notice_until=ends)
        else:
            notice = host.notice_until if host.leaving else None
            draft.set_host(name, unlisted=False, notice_until=notice, slots=slots[name])
    _give_notice(draft, until)
    if larger:
        _want_more(draft)


def _give_notice(draft: Draft, until: float) -> None:
    """Of more members than their host has slots, those in the last ones leave, as on a notice."""
    staying: dict[str, list[MemberState]] = {}
    for member in sorted(draft.state.members.values(), key=lambda m: m.slot):
        if member.stage is not Stage.LEAVING and member.notice_until is None:
            staying.setdefault(member.host, []).append(member)
    for host in draft.state.hosts.values():
        if surplus := staying.get(host.name, [])[host.slots :]:
            draft.set_members([m.name for m in surplus], notice_until=until)
