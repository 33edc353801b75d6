"""What the launcher rides out: a killed coordinator, a killed agent, its own death."""

import os
import signal
from pathlib import Path

import pytest

from tests.run.scripts import UNTIL_RELEASED, WAIT, python
from tests.run.site import Launched, Site, eventually
from tests.run.striking import make_strikable

pytestmark = pytest.mark.slow


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A pipe that members wait at."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


def release(gate: Path) -> None:
    gate.open("w").close()


def start(site: Site, gate: Path, *arguments: str) -> Launched:
    return site.launch("--name", "demo", *arguments, "--", *python(UNTIL_RELEASED, str(gate)))


def has_answering_hosts(site: Site, *names: str) -> bool:
    hosts = site.status("demo")["hosts"]
    return {host["name"] for host in hosts if host["connected"]} == set(names)


def test_a_killed_coordinator_is_replaced_and_the_members_go_on(site: Site, gate: Path) -> None:
    run = start(site, gate, "-np", "2")
    run.says("up", times=2)
    members = site.members(UNTIL_RELEASED)
    killed = site.pid_of("midflight.coordinator")
    os.kill(killed, signal.SIGKILL)
    run.says("the coordinator was killed by SIGKILL; starting another")
    eventually(lambda: has_answering_hosts(site, "localhost"))
    assert site.pid_of("midflight.coordinator") != killed
    assert site.members(UNTIL_RELEASED) == members
    release(gate)
    assert run.ends() == 0, run.lines


def test_a_coordinator_that_raises_is_replaced_and_the_members_go_on(
    site: Site, gate: Path
) -> None:
    strike = make_strikable(site, "midflight.coordinator")
    run = start(site, gate, "-np", "2")
    run.says("up", times=2)
    members = site.members(UNTIL_RELEASED)
    strike()
    run.says("RuntimeError: struck on purpose")
    run.says("the coordinator ended with exit code 1; starting another")
    eventually(lambda: has_answering_hosts(site, "localhost"))
    assert site.members(UNTIL_RELEASED) == members
    release(gate)
    assert run.ends() == 0, run.lines


def test_a_killed_agent_takes_its_members_along_and_is_replaced(site: Site) -> None:
    run = site.launch(
        *("--name", "demo", "-np", "2", "--min-np", "1", "--max-np", "2"),
        *("-H", "localhost:1,127.0.0.1:1", "--cooldown", "0", "0", "--", *python(WAIT)),
    )
    run.says("up", times=2)
    os.kill(site.agent_pid("127.0.0.1"), signal.SIGKILL)
    run.says("the agent of 127.0.0.1 was killed by SIGKILL; starting another in 0.5 s")
    eventually(lambda: has_answering_hosts(site, "localhost", "127.0.0.1"))
    eventually(lambda: len(site.members(WAIT)) == 2)
    run.send(signal.SIGINT)
    assert run.ends() == 130


def cut_off(site: Site, run: Launched) -> None:
    """Kill launcher and coordinator at once."""
    coordinator = site.pid_of("midflight.coordinator")
    run.send(signal.SIGKILL)
    run.process.wait()
    os.kill(coordinator, signal.SIGKILL)


def test_a_run_that_was_cut_off_is_taken_up_again_with_the_agents_it_has(
    site: Site, gate: Path
) -> None:
    first = start(site, gate, "-np", "2")
    first.says("up", times=2)
    agent, members = site.pid_of("midflight.agent"), site.members(UNTIL_RELEASED)
    cut_off(site, first)
    second = start(site, gate, "-np", "2")
    second.says("resuming run demo where it was interrupted")
    eventually(lambda: has_answering_hosts(site, "localhost"))
    assert site.pid_of("midflight.agent") == agent
    assert site.members(UNTIL_RELEASED) == members
    release(gate)
    assert second.ends() == 0, second.lines


def test_ctrl_c_also_ends_agents_that_were_taken_over(site: Site, gate: Path) -> None:
    first = start(site, gate, "-np", "1")
    first.says("up")
    cut_off(site, first)
    second = start(site, gate, "-np", "1")
    second.says("resuming run demo")
    second.send(signal.SIGINT)
    assert second.ends(within=5.0) == 130


def test_a_run_that_was_cut_off_is_not_mixed_up_with_other_work(site: Site, gate: Path) -> None:
    first = start(site, gate, "-np", "1")
    first.says("up")
    cut_off(site, first)
    second = site.launch("--name", "demo", "-np", "1", "--", *python(WAIT))
    second.process.wait(10)
    second.says("the run demo was interrupted, and its command was")
    assert second.ends() == 2
    third = start(site, gate, "-np", "1")
    third.says("resuming run demo")
    third.send(signal.SIGTERM)
    assert third.ends(within=5.0) == 143
