"""Worlds of thousands: what they cost, and what one message and one saved state hold at most."""

import base64
import random
from dataclasses import replace

import pytest

from bench.coordinator_case import CHANGED, measure
from bench.simulated import KEY_OWN_BYTES
from midflight.coordinator.core import events
from midflight.coordinator.core.commands import Probe
from midflight.coordinator.core.handle import handle
from midflight.coordinator.core.state import (
    Change,
    ChangeStage,
    Forming,
    HostState,
    MemberState,
    Mode,
    Phase,
    Request,
    Stage,
    State,
)
from midflight.coordinator.core.status import status
from midflight.coordinator.keys import Keys
from midflight.coordinator.saved_state import read, written
from midflight.deadlines import BEATS_HEARD, LONGEST_BEAT, beat_seconds
from midflight.protocol import messages as say
from midflight.protocol.job import JobSpec
from midflight.protocol.wire import FRAME_LIMIT, encode_frame
from midflight.protocol.world import World
from midflight.store.interface import MAX_VALUE

SECRET = b"secret"
KEY_BYTES = 154  # of gloo's key of one rank, without a number for each other rank
SIZES = pytest.mark.parametrize("size", [1000, 4000])


def large_state(size: int) -> State:
    """A world of that size, in the middle of a planned change, with times that look like times."""
    numbers = random.Random(size)

    def moment() -> float:
        return numbers.uniform(0.0, 1e6)

    hosts = {
        (name := f"training-worker-{n}.training.svc"): HostState(
            name, 8, f"10.{n >> 8}.{n & 255}.7", connected=True, heard_at=moment()
        )
        for n in range(size // 8)
    }
    places = [(host, slot) for host in hosts.values() for slot in range(8)]
    members = {
        (name := f"m{n}"): MemberState(
            name,
            host.name,
            slot,
            host.address,
            moment(),
            Stage.ACTIVE,
            pid=numbers.randrange(1 << 22),
            heard_at=moment(),
            moved_at=moment(),
            step=numbers.randrange(9),
            rate=moment(),
            stepped_at=moment(),
            moved=numbers.randrange(1 << 40),
        )
        for n, (host, slot) in enumerate(places)
    }
    world = World(7, tuple(member.member for member in members.values()))
    coming = World(8, world.members)
    names = frozenset(world.names)
    return State(
        spec=JobSpec("large", ("python", "train.py"), np=size, min_np=1, max_np=2 * size),
        wanted=size,
        started_at=moment(),
        phase=Phase.SWITCHING,
        world=world,
        hosts=hosts,
        members=members,
        forming=Forming(coming, moment(), moment(), names),
        change=Change(
            Request(None, moment(), to=size),
            size,
            stage=ChangeStage.SWITCHING,
            world=coming,
            ready=names,
            settled=names,
        ),
    )


def gloo_key(numbers: random.Random) -> str:
    """Half of it differs between any two members: far more than of a real one."""
    return base64.b64encode(bytes(KEY_BYTES // 2) + numbers.randbytes(KEY_BYTES // 2)).decode()


@SIZES
def test_no_message_of_a_large_world_passes_the_limit_of_a_frame(size: int) -> None:
    state = large_state(size)
    world, numbers = state.world, random.Random(1)
    assert world is not None
    kept = written(state, 0.0, "large", SECRET).decode()
    for message in (
        say.Form(world),
        say.Prepare(world, world.names),
        say.Switch(world, world.names, 1 << 40),
        say.RankKeys(7, "0/", tuple(gloo_key(numbers) for _ in range(size))),
        status(state, 0.0),
        say.KeepState(1, "host", kept),
    ):
        assert len(encode_frame(message)) < FRAME_LIMIT / 2


@SIZES
def test_the_saved_state_of_a_large_world_fits_into_one_value(size: int) -> None:
    value = written(large_state(size), 0.0, "large", SECRET)
    assert len(value) < MAX_VALUE
    assert len(read(value, 0.0, "large", SECRET).members) == size


def test_the_keys_of_all_ranks_are_encoded_once_for_all_who_want_them() -> None:
    keys = Keys()
    frames: list[bytes] = []
    for rank in range(100):
        keys.want_ranks(1, "0/", 100, frames.append)
        keys.set(1, f"0/{rank}", "here")
    keys.want_ranks(1, "0/", 100, frames.append)  # one that lost its line meanwhile
    assert len(frames) == 101
    assert all(frame is frames[0] for frame in frames)


def test_many_members_beat_less_often() -> None:
    assert [beat_seconds(size) for size in (1, 500, 1000)] == [0.2, 0.2, 0.4]
    assert max(size / beat_seconds(size) for size in range(1, 2500)) <= BEATS_HEARD + 1
    assert beat_seconds(100_000) == LONGEST_BEAT  # in time for the lease of a host


@pytest.mark.parametrize(("silent", "looked_at"), [(3.0, False), (4.0, True)])
def test_whoever_beats_less_often_may_be_silent_for_longer(silent: float, looked_at: bool) -> None:
    now = 100.0
    state = large_state(4000)
    members = {name: replace(m, joined=True, connected=True) for name, m in state.members.items()}
    members = {name: replace(m, heard_at=now, moved_at=now) for name, m in members.items()}
    host = members["m5"].host
    members["m5"] = replace(members["m5"], heard_at=now - silent)
    state = replace(
        state,
        mode=Mode.ELASTIC,
        phase=Phase.STABLE,
        forming=None,
        change=None,
        ticked_at=now - 0.1,
        members=members,
    )
    _, commands = handle(state, events.Ticked(now, {}, frozenset(state.hosts)))
    assert [c for c in commands if isinstance(c, Probe)] == [Probe("m5", host)] * looked_at


@pytest.mark.slow
def test_a_world_of_a_thousand_costs_what_its_members_and_the_keys_of_gloo_do() -> None:
    """Each member hears of each other one: its key, and who it is. All else grows with the size."""
    size = 1000 + CHANGED
    for part in measure(1000):
        # Each death may come when the world after the one before is announced already.
        worlds = CHANGED if "lost" in part.name else 1
        assert part.messages <= worlds * 8 * size, part
        assert part.size <= worlds * size * (size * (KEY_OWN_BYTES + 16) + 1500), part
