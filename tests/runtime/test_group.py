"""Groups that are cut while they are being built, as when somebody is lost then, or forgotten."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from midflight.errors import WorldChanged
from midflight.runtime.group import process_group as groups
from midflight.runtime.group.process_group import Group
from tests.runtime.keys import Keys, world

SECONDS = 30.0


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(3) as pool:
        yield pool


@pytest.fixture
def keys_nobody_has() -> Iterator[Keys]:
    """A wait for them ends with the test: as if gloo did not come back."""
    keys = Keys()
    yield keys
    keys.give_up()


def test_a_group_that_cannot_be_built_and_is_cut_does_not_keep_the_next_one_waiting(
    threads: ThreadPoolExecutor, keys_nobody_has: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "BUILDING_SECONDS", 2 * SECONDS)  # nobody gives up waiting
    stuck = Group(world(2), "m0", "gloo")
    building: Future[None] = threads.submit(stuck.connect, keys_nobody_has)
    assert keys_nobody_has.asked_for.wait(SECONDS)
    stuck.cut()
    keys = Keys()
    first, second = (Group(world(2, 4), name, "gloo") for name in ("m0", "m1"))
    connecting = [threads.submit(first.connect, keys)]
    assert keys.asked_for.wait(SECONDS)
    assert not building.done()
    monkeypatch.setattr(groups, "BUILDING_SECONDS", 0.0)  # in one process, it would wait for first
    connecting.append(threads.submit(second.connect, keys))
    assert [done.exception(SECONDS) for done in connecting] == [None, None]

    # However often it is cut: what has come since is none of its own.
    stuck.cut()
    keys_nobody_has.give_up()
    assert isinstance(building.exception(SECONDS), WorldChanged)
    heard = [threads.submit(member.gather, [member.rank]) for member in (first, second)]
    assert [answer.result(SECONDS) for answer in heard] == [[[0], [1]], [[0], [1]]]
    first.cut()
    second.cut()


class OverKeys(Keys):
    """Notes how long they would have been waited for, and gives up."""

    seconds = 0.0

    def want_keys(self, generation: int, keys: Sequence[str], timeout: float) -> Sequence[str]:
        self.seconds = timeout
        raise WorldChanged("given up")


def test_more_members_have_more_time_to_connect() -> None:
    few, many = OverKeys(), OverKeys()
    for size, keys in ((3, few), (2003, many)):
        with pytest.raises(WorldChanged):
            Group(world(size), "m1", "gloo").connect(keys)
    assert many.seconds >= few.seconds + 2000 * groups.CONNECT_EACH - 1


def test_a_group_that_was_cut_before_it_is_built_is_not_built() -> None:
    group, keys = Group(world(2), "m0", "gloo"), Keys()
    group.cut()
    with pytest.raises(WorldChanged):
        group.connect(keys)
    assert not keys.asked_for.is_set()


@pytest.mark.parametrize("when", ["in a hook of another module", "later"])
def test_a_forked_child_leaves_alone_what_its_parent_has_forgotten(when: str) -> None:
    """As a worker of a DataLoader, which is forked after groups have come and gone."""
    allocate = "lambda: [[] for _ in range(2_000_000)]" if when != "later" else "None"
    script = (
        "import gc, os, signal\n"
        f"hook = {allocate}\n"  # enough for the collector to begin by itself
        "hook and os.register_at_fork(after_in_child=hook)\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from midflight.runtime.group.process_group import Group\n"
        "from tests.runtime.keys import Keys, world\n"
        "gc.set_threshold(1_000_000)\n"
        "keys, groups = Keys(), [Group(world(2), name, 'gloo') for name in ('m0', 'm1')]\n"
        "with ThreadPoolExecutor(2) as threads:\n"
        "    list(threads.map(lambda group: group.connect(keys), groups))\n"
        "groups.append(groups)\n"  # only a collector finds them now
        "del groups\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    signal.alarm(20)\n"
        "    gc.collect()\n"
        "    os._exit(0)\n"
        "print('child', os.waitpid(child, 0)[1], flush=True)\n"
        "os._exit(0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=2 * SECONDS,
    )
    last = done.stdout.splitlines()[-1:]  # after what some versions of gloo say
    assert last == ["child 0"], (done.stdout, done.stderr[-2000:])
