"""Draft: the state and commands of one decision while it is being made.

A decision is a pure function from outside; inside it is easier to read as a few small changes in
a row. A draft lives for one event only.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from midflight.coordinator.core.commands import (
    Answer,
    Command,
    End,
    Inform,
    Probe,
    Say,
    Start,
    Stop,
    Tell,
)
from midflight.coordinator.core.state import (
    HostState,
    MemberState,
    Outcome,
    Phase,
    Request,
    State,
)

OUTCOMES = 64  # that are remembered


class Draft:
    def __init__(self, state: State, now: float) -> None:
        self.state = state
        self.now = now
        self.commands: list[Command] = []
        self._members: dict[str, MemberState] = {}  # those of `state`, once they are this draft's

    def set(self, **changes: Any) -> None:
        self.state = replace(self.state, **changes)

    def set_member(self, name: str, **changes: Any) -> MemberState:
        member = replace(self.state.members[name], **changes)
        self.put_member(member)
        return member

    def set_members(self, names: Iterable[str], **changes: Any) -> None:
        for name in names:
            if name in self.state.members:
                self.set_member(name, **changes)

    def put_member(self, member: MemberState) -> None:
        """The table is copied at the first change only: there may be thousands in it."""
        if self.state.members is not self._members:
            self._members = dict(self.state.members)
            self.set(members=self._members)
        self._members[member.name] = member

    def drop_member(self, name: str) -> None:
        self.set(members={key: m for key, m in self.state.members.items() if key != name})

    def set_host(self, name: str, **changes: Any) -> HostState:
        host = replace(self.state.hosts[name], **changes)
        self.set(hosts={**self.state.hosts, name: host})
        return host

    def enter(self, phase: Phase, detail: str = "") -> None:
        self.set(phase=phase, detail=detail)

    def tell(self, members: Iterable[str], message: object, durable: bool = False) -> None:
        names = tuple(members)
        if names:
            self.commands.append(Tell(names, message, durable))

    def start(self, command: Start) -> None:
        self.commands.append(command)

    def stop(self, member: MemberState, grace: float = 0.0, *, durable: bool = False) -> None:
        self.commands.append(Stop(member.name, member.host, grace, durable))

    def probe(self, member: MemberState) -> None:
        self.commands.append(Probe(member.name, member.host))

    def say(self, line: str, level: str = "info") -> None:
        self.commands.append(Say(line, level))

    def answer(self, request: Request, ok: bool, detail: str) -> None:
        if request.id:
            outcomes = (*self.state.outcomes, Outcome(request.id, ok, detail))
            self.set(outcomes=outcomes[-OUTCOMES:])
        if request.ticket is not None:
            self.commands.append(Answer(request.ticket, ok, detail))

    def inform(self, request: Request, line: str) -> None:
        if request.ticket is not None:
            self.commands.append(Inform(request.ticket, line))

    def end(self, code: int, reason: str) -> None:
        self.commands.append(End(code, reason))
