"""Whatever happens, in whatever order: `promises.py` holds, everything ends, and a server that dies
in between changes nothing about how."""

from collections.abc import Callable
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from midflight.controller import events
from midflight.controller.scale_rules import objection
from midflight.controller.state import OPEN, Stage
from tests.controller.promises import next_deadline
from tests.controller.scenario import GIT, Scenario, node

JOBS = ("a", "b", "c")
NODES = ("node-1", "node-2")
CODES = (0, 1, 137, -9, -15)
KINDS: dict[str, dict[str, Any]] = {
    "elastic": {"workers": 3, "min_workers": 1, "max_workers": 4},
    "narrow": {"workers": 2, "min_workers": 2, "max_workers": 3, "restart_policy": "OnFailure"},
    "careless": {"workers": 2, "min_workers": 1, "worker_restart_policy": "Never"},
    "fetched": {"workers": 1, "min_workers": 1, "sync": GIT},
    "slotless": {"workers": 2, "min_workers": 1, "gpus": 0, "clean_policy": "None"},
}
FIXED: dict[str, dict[str, Any]] = {
    "fixed": {"workers": 2, "retry": 1, "ttl_after_finished": 50.0},
    "bent": {"workers": 2, "min_workers": 1, "max_workers": 3, "running_timeout": 200.0},
    "hasty": {"workers": 4, "max_wait_time": 20.0},
}
Action = tuple[Any, ...]

jobs = st.sampled_from(JOBS)
numbers = st.integers(0, 9)
actions = st.one_of(
    st.tuples(st.just("submit"), jobs, st.sampled_from([*KINDS, *FIXED])),
    st.tuples(st.just("submit"), jobs, st.sampled_from([*KINDS, *FIXED])),
    st.tuples(st.just("scale"), jobs, st.sampled_from(["scaleout", "scalein"]), numbers),
    st.tuples(st.just("name"), jobs, numbers),
    st.tuples(st.just("end"), jobs, numbers, st.sampled_from(CODES)),
    st.tuples(st.just("refuse"), jobs, st.booleans()),
    st.tuples(st.just("delete"), jobs),
    st.tuples(st.just("hold"), jobs, st.booleans()),
    st.tuples(
        st.just("node"),
        st.sampled_from(["cordon", "drain", "lose", "return"]),
        st.sampled_from(NODES),
    ),
    st.tuples(st.just("nodes"), st.integers(1, 3)),
    st.tuples(st.just("wait"), st.sampled_from([0.5, 5.0, 40.0, 100.0])),
)
loose = st.one_of(
    actions,
    st.tuples(st.just("deliver"), numbers),
    st.tuples(st.just("deliver"), numbers),
    st.tuples(st.just("deafen"), jobs, numbers),
    st.tuples(st.just("mute"), st.booleans()),
    st.tuples(st.just("restart")),
)


def submit(s: Scenario, name: str, kind: str) -> None:
    if f"default/{name}" in s.cluster.jobs:
        return
    if kind in KINDS:
        s.etjob(name, **KINDS[kind])
    else:
        s.pytorchjob(name, **FIXED[kind])


def scale(s: Scenario, name: str, kind: str, number: int) -> None:
    job = s.cluster.jobs.get(f"default/{name}")
    count = number % 3 + 1
    if job is not None and objection(job, kind, count, (), None) is None:
        s.scale(kind, count, job=name, partial=number > 4, timeout=30.0 + number)


def scale_by_name(s: Scenario, name: str, number: int) -> None:
    job = s.cluster.jobs.get(f"default/{name}")
    names = (f"{name}-worker-{number}",)
    if job is not None and objection(job, "scalein", 1, names, None) is None:
        s.scale("scalein", 1, (f"worker-{number}",), job=name)


def end(s: Scenario, name: str, number: int, code: int) -> None:
    """One of those that run ends by itself."""
    mine = [instance for key, instance in s.alive if key == f"default/{name}"]
    if mine:
        s.end(sorted(mine)[number % len(mine)][len(name) + 1 :], code, name)


def refuse(s: Scenario, name: str, ok: bool) -> None:
    if f"default/{name}" in s.asked:
        s.answer(ok, "so it says", name)


def delete(s: Scenario, name: str) -> None:
    if f"default/{name}" in s.cluster.jobs:
        s.delete(name)


def hold(s: Scenario, name: str, held: bool) -> None:
    if f"default/{name}" in s.cluster.jobs:
        s.hold(name=name) if held else s.release(name)


def change_nodes(s: Scenario, count: int) -> None:
    new = tuple(node(f"node-{n}", gpus=3) for n in range(1, count + 1))
    s.tell(events.NodesChanged(s.now, new))


def deliver(s: Scenario, number: int) -> None:
    if s.outcomes:
        s.deliver(number % len(s.outcomes))


def deafen(s: Scenario, name: str, number: int) -> None:
    s.deaf ^= {f"{name}-worker-{number}"}


def mute(s: Scenario, silent: bool) -> None:
    s.training_answers = not silent


DEEDS: dict[str, Callable[..., None]] = {
    "submit": submit,
    "scale": scale,
    "name": scale_by_name,
    "end": end,
    "refuse": refuse,
    "delete": delete,
    "hold": hold,
    "node": lambda s, action, name: s.node(action, name),
    "nodes": change_nodes,
    "wait": lambda s, seconds: s.wait(seconds),
    "deliver": deliver,
    "deafen": deafen,
    "mute": mute,
    "restart": lambda s: s.restart(),
}


def start() -> Scenario:
    return Scenario(node("node-1", gpus=3), node("node-2", gpus=3), held=True)


def come_to_rest(s: Scenario) -> None:
    """Everything that can be heard is heard, and everything that waits has waited enough."""
    s.deaf.clear()
    s.training_answers = True
    s.held = False
    for name in JOBS:
        hold(s, name, held=False)
    for _ in range(8):
        s.deliver_all()
        s.wait(60)


@settings(max_examples=150, deadline=None)
@given(st.lists(loose, max_size=40))
@example(
    [
        ("node", "cordon", "node-2"),
        ("submit", "c", "elastic"),
        ("delete", "c"),
        ("node", "lose", "node-1"),
    ]
)
def test_every_order_keeps_the_promises_and_everything_ends(steps: list[Action]) -> None:
    s = start()
    for verb, *rest in steps:
        DEEDS[verb](s, *rest)
    come_to_rest(s)
    for job in s.cluster.jobs.values():
        assert not job.deleting
        assert not [o for o in job.operations if o.progress in OPEN]
        assert Stage.STOPPING not in {i.stage for i in job.instances.values()}
        assert Stage.STARTING not in {i.stage for i in job.instances.values()}
        up = {i.name for i in job.instances.values() if i.stage is Stage.RUNNING}
        assert up == {name for key, name in s.alive if key == job.key}
    deadline = next_deadline(s.cluster)
    assert deadline is None or deadline > s.now


@settings(max_examples=100, deadline=None)
@given(st.lists(actions, max_size=12), st.integers(0, 12))
def test_a_restart_at_any_point_leads_to_the_same_end(steps: list[Action], where: int) -> None:
    ends = []
    for restarts in (False, True):
        s = start()
        for number, (verb, *rest) in enumerate(steps):
            DEEDS[verb](s, *rest)
            if restarts and number == where:
                s.restart()
            s.deliver_all()
        come_to_rest(s)
        ends.append(outcome(s))
    assert ends[0] == ends[1]


def outcome(s: Scenario) -> object:
    return {
        key: (
            job.phase,
            job.wanted,
            {i.name: i.stage for i in job.instances.values()},
            [o.progress for o in job.operations],
        )
        for key, job in s.cluster.jobs.items()
    }
