"""Whatever happens, in whatever order: the promises hold, and the job never sticks.

Random sequences of harm and wishes on the fake cluster, words delivered in random order, the
coordinator killed at random moments. `promises.Promises` checks every announcement on the way; in
the end all harm stops, there is room, and the job has to come to rest.
"""

from collections.abc import Callable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from midflight.coordinator.core import events
from midflight.coordinator.core.state import Phase
from tests.coordinator.fake_members import FakeMember, Fate, Health
from tests.coordinator.scenario import FakeCluster, over, stable

Deed = Callable[[FakeCluster, int], object]


GENTLE = 3  # how often time passes, compared with each of the other deeds


def members(cluster: FakeCluster) -> list[FakeMember]:
    return [m for m in cluster.members.values() if m.health is not Health.GONE]


def on_one(deed: Callable[[FakeCluster, FakeMember], None]) -> Deed:
    def do(cluster: FakeCluster, number: int) -> None:
        if there := members(cluster):
            deed(cluster, there[number % len(there)])

    return do


def kill_agent(cluster: FakeCluster, number: int) -> None:
    alive = [a for a in cluster.agents.values() if a.alive]
    if alive:
        cluster.kill_agent(alive[number % len(alive)].name)


def add_host(cluster: FakeCluster, number: int) -> None:
    dead = [a.name for a in cluster.agents.values() if not a.alive]
    fresh = f"h{len(cluster.agents)}"
    if dead or len(cluster.agents) < 5:
        cluster.add_host(dead[0] if dead else fresh, 1 + number % 3)


def ask_for_size(cluster: FakeCluster, number: int) -> None:
    cluster.ask(timeout=10.0, to=number % 8)


def ask_for_more_and_less(cluster: FakeCluster, number: int) -> None:
    names = [n for i, n in enumerate(cluster.world) if number >> i & 1]
    cluster.ask(timeout=10.0, add=number % 4, remove=number // 4 % 2, names=tuple(names))


def replace_all(cluster: FakeCluster, number: int) -> None:
    cluster.ask(timeout=10.0, add=len(cluster.world), names=cluster.world)


def notice_member(cluster: FakeCluster, member: FakeMember) -> None:
    if member.connected:
        member.tell(events.Noticed, 5.0)


def notice_host(cluster: FakeCluster, number: int) -> None:
    agents = [a for a in cluster.agents.values() if a.reachable]
    if agents:
        host = agents[number % len(agents)]
        host.tell(events.HostNoticed, host.name, 5.0)


def lose_connection(cluster: FakeCluster, member: FakeMember) -> None:
    if member.connected and member.beats:
        member.connected = False
        member.tell(events.Disconnected)
        member.dial()


def break_a_collective(cluster: FakeCluster, member: FakeMember) -> None:
    if member.comes_on and member.generation and not member.broken and not member.finished:
        member.break_off()


def set_health(health: Health) -> Callable[[FakeCluster, FakeMember], None]:
    def do(cluster: FakeCluster, member: FakeMember) -> None:
        if member.health in (Health.RUNNING, Health.BUSY, Health.STUCK):
            member.health = health

    return do


def choose_fates(cluster: FakeCluster, number: int) -> None:
    fates = (Fate.JOINS, Fate.DIES, Fate.HANGS)
    for ahead in range(3):
        cluster.fate[f"m{cluster.state.serial + ahead}"] = fates[number // 3**ahead % 3]


def restart(cluster: FakeCluster, number: int) -> None:
    cluster.restart()
    cluster.store_works = True


def restart_after_failed_save(cluster: FakeCluster, number: int) -> None:
    cluster.store_works = False
    for _ in range(number % 7):
        cluster.deliver_one()
    restart(cluster, number)


def pause(cluster: FakeCluster, number: int) -> None:
    there = [a.name for a in cluster.agents.values() if a.alive]
    cluster.pause(2.0 + number % 9, *there)


def break_lines(cluster: FakeCluster, number: int) -> None:
    """Of all or some hosts; they dial again a little later."""
    there = [a.name for a in cluster.agents.values() if a.alive and not a.cut]
    some = [name for i, name in enumerate(there) if number >> i & 1] or there
    cluster.hang_up(*some)
    for _ in range(number % 5):
        cluster.deliver_one()
    cluster.dial_again(*some)


def cut_all(cluster: FakeCluster, number: int) -> None:
    there = [a.name for a in cluster.agents.values() if a.alive and not a.cut]
    for name in there:
        cluster.cut(name)
    cluster.run(number % 12)
    for name in there:
        cluster.heal(name)


def deliver_some(cluster: FakeCluster, number: int) -> None:
    for _ in range(number % 9):
        cluster.deliver_one()


DEEDS: dict[str, Deed] = {
    "pass time": lambda cluster, number: cluster.run(0.1 + number % 12 / 4),
    "deliver some words": deliver_some,
    "pause the coordinator": pause,
    "break the lines of hosts": break_lines,
    "cut the coordinator off from all": cut_all,
    "kill a member": on_one(lambda cluster, member: cluster.kill(member.name)),
    "kill an agent": kill_agent,
    "add a host": add_host,
    "ask for a size": ask_for_size,
    "ask for more and less": ask_for_more_and_less,
    "replace all": replace_all,
    "notice for a member": on_one(notice_member),
    "notice for a host": notice_host,
    "stop a member": on_one(set_health(Health.STOPPED)),
    "make a member busy": on_one(set_health(Health.BUSY)),
    "let a member hang": on_one(set_health(Health.STUCK)),
    "wake a member": on_one(set_health(Health.RUNNING)),
    "lose a connection": on_one(lose_connection),
    "break a collective": on_one(break_a_collective),
    "fates of newcomers": choose_fates,
    "hold words back": on_one(lambda cluster, member: cluster.mute.add(member.name)),
    "restart the coordinator": restart,
    "restart it after a failed save": restart_after_failed_save,
}


CHOICE = [*DEEDS, *["pass time", "deliver some words", "add a host"] * GENTLE]


def end_all_harm(cluster: FakeCluster) -> None:
    cluster.mute.clear()
    cluster.store_works = True
    cluster.save()
    cluster.fate.clear()
    for member in cluster.members.values():
        if member.health in (Health.BUSY, Health.STUCK):
            member.health = Health.RUNNING
        if member.health is Health.RUNNING and not member.connected:
            member.dial()  # late, but it comes
    for name, agent in cluster.agents.items():
        if not agent.alive:
            cluster.add_host(name, agent.slots)
    cluster.add_host("h9", 12)


@settings(
    max_examples=100, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
@given(
    min_np=st.integers(1, 3),
    deeds=st.lists(st.tuples(st.sampled_from(CHOICE), st.integers(0, 63)), max_size=30),
    order=st.randoms(use_true_random=False),
)
def test_the_promises_hold_and_the_job_never_sticks(min_np, deeds, order) -> None:  # type: ignore[no-untyped-def]
    cluster = FakeCluster(
        {"h0": 2, "h1": 2, "h2": 3},
        np=4,
        min_np=min_np,
        max_np=6,
        elastic_timeout=20.0,
        start_timeout=3.0,
        cooldown_min=1.0,
        cooldown_max=4.0,
        hang_timeout=5.0,
        grace=5.0,
    )
    cluster.pick = order.choice
    for name, number in deeds:
        DEEDS[name](cluster, number)
    cluster.settle()
    end_all_harm(cluster)
    cluster.run(8.0)  # by then, whoever is stopped or gone has been found out
    cluster.run_until(lambda: cluster.ended is not None or stable(cluster), 90.0)
    if not cluster.ended:
        comes_to_its_end(cluster)
    asked = set(range(1, cluster.promises.asked + 1))
    assert asked - cluster.promises.forgotten == set(cluster.answers), "every request is answered"


def comes_to_its_end(cluster: FakeCluster) -> None:
    before = cluster.promises.done
    cluster.run(2.0)
    assert cluster.phase in (Phase.STABLE, Phase.PREPARING, Phase.SWITCHING)
    assert cluster.promises.done > before, "it trains"
    cluster.last_step = cluster.promises.done + 20
    cluster.run_until(lambda: cluster.ended is not None, 60.0)
    assert over(cluster) and cluster.ended is not None
    assert cluster.running == [], "no process is left over"
