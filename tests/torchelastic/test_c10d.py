"""Nodes that meet by themselves: they come, go and die, the one with the coordinator too."""

import json
import re
import signal
from pathlib import Path

import pytest

from midflight.compat.torchelastic.secret import secret_of
from midflight.protocol.audit import TORCHRUN_AUDIT
from midflight.protocol.messages import StopRequested
from midflight.protocol.wire import dial_blocking
from tests.run.site import Launched, Site, eventually
from tests.run.striking import make_strikable
from tests.store.etcd_process import free_port
from tests.torchelastic.nodes import (
    SCRIPTS,
    Job,
    finish,
    latest,
    meeting_on_loopback,
    torchrun,
)

pytestmark = pytest.mark.slow


def test_nodes_come_and_die_and_the_job_goes_on(site: Site) -> None:
    job = Job(site, "--nnodes=1:3", *meeting_on_loopback())
    host, second = job.start(), job.start()
    first_world = job.await_size(host, second, size=2)
    assert sorted(worker.rank for worker in first_world) == [0, 1]
    newcomer = job.start()
    second_world = job.await_size(host, second, newcomer, size=3)
    assert not {w.pid for w in first_world} & {w.pid for w in second_world}, "all were restarted"
    second.send(signal.SIGKILL)
    job.await_size(host, newcomer, size=2)
    late = job.start()
    job.await_size(host, newcomer, late, size=3)
    host.send(signal.SIGKILL)
    job.await_size(newcomer, late, size=2)
    newcomer.says("this one carries it on")
    latest_comer = job.start()
    workers = job.await_size(newcomer, late, latest_comer, size=3)
    assert sorted(worker.rank for worker in workers) == [0, 1, 2]
    job.stop()
    for node in (newcomer, late, latest_comer):
        lines = finish(node)
        assert all("attempt 0" in line for line in lines if line.startswith("up")), lines


def test_nodes_whose_connections_are_encrypted_survive_the_one_with_the_coordinator(
    site: Site,
) -> None:
    site.env["MIDFLIGHT_TLS"] = "1"
    job = Job(site, "--nnodes=1:2", *meeting_on_loopback())
    host, second = job.start(), job.start()
    job.await_size(host, second, size=2)
    host.send(signal.SIGKILL)
    job.await_size(second, size=1)
    job.stop()
    finish(second)


def test_a_coordinator_that_raises_is_started_again_where_it_was(site: Site) -> None:
    strike = make_strikable(site, "midflight.torchrun")
    job = Job(site, "--nnodes=1:2", *meeting_on_loopback())
    host = job.start()
    job.await_size(host, size=1)
    strike()
    host.says("RuntimeError: struck on purpose")
    host.says("the coordinator failed; starting another")
    other = job.start()
    job.await_size(host, other, size=2)
    job.stop()
    finish(other)
    ups = [line for line in finish(host) if line.startswith("up")]
    assert [line.split()[1] for line in ups] == ["0/1", "0/2"], "the fault restarted nobody"


def test_a_node_that_is_told_to_leave_hands_over_what_it_carries(site: Site) -> None:
    job = Job(site, "--nnodes=1:2", *meeting_on_loopback())
    host = job.start()
    job.await_size(host, size=1)
    other = job.start()
    job.await_size(host, other, size=2)
    host.send(signal.SIGTERM)
    assert host.ends(5.0) == 143
    job.await_size(other, size=1)
    back = job.start()
    job.await_size(other, back, size=2)
    back.send(signal.SIGINT)
    assert back.ends(5.0) == 130
    job.await_size(other, size=1)
    job.stop()
    finish(other)


@pytest.mark.parametrize("nodes", ["1:2", "2"])
def test_workers_of_a_node_that_leaves_right_after_the_start_can_save(
    site: Site, nodes: str
) -> None:
    job = Job(site, f"--nnodes={nodes}", *meeting_on_loopback(), script="saves.py")
    host, other = job.start(), job.start()
    job.await_size(host, other, size=2)
    other.send(signal.SIGTERM)
    assert other.ends(5.0) == 143
    assert "saved" in other.lines
    host.says("saved")  # whose worker starts anew, or waits for another node
    host.send(signal.SIGTERM)
    assert host.ends(5.0) == 143


def test_where_all_nodes_are_needed_the_rest_waits_for_another(site: Site) -> None:
    job = Job(site, "--nnodes=2", "--shutdown-timeout=1", *meeting_on_loopback())
    host, other = job.start(), job.start()
    before = {worker.pid for worker in job.await_size(host, other, size=2)}
    host.send(signal.SIGTERM)
    assert host.ends(5.0) == 143
    newcomer = job.start()
    newcomer.says("up")
    other.says("up", times=2)
    assert not before & {worker.pid for worker in job.await_size(other, newcomer, size=2)}
    job.stop()
    finish(other)
    finish(newcomer)


def test_a_failure_on_one_node_is_restarted_on_all_and_counted_once(site: Site) -> None:
    job = Job(site, "--nnodes=2", "--max-restarts=1", *meeting_on_loopback())
    nodes = [job.start(), job.start()]
    job.await_size(*nodes, size=2)
    (site.folder / "fail-1").touch()
    for node in nodes:
        node.says("attempt 1 ")
    (site.folder / "fail-0").touch()
    assert [node.ends() for node in nodes] == [1, 1]
    shown = ["\n".join(node.lines) for node in nodes]
    assert sum("ChildFailedError" in text for text in shown) == 1, "where it failed"
    failed = re.compile(r"error: a worker failed: rank 0 on \S+: exit code 7 .*is used up")
    assert all(failed.search(text) for text in shown), "every node says who, where and why"


def left_elsewhere(
    site: Site, last_call: float
) -> tuple[Job, Launched, tuple[str, ...], tuple[str, ...]]:
    """A job whose node at the endpoint was killed: the one that goes on, and the flags of both."""
    endpoint = f"--rdzv-endpoint=127.0.0.2:{free_port()}"
    job = Job(site, "--nnodes=1:3", "--rdzv-backend=c10d", endpoint, "--rdzv-id=again")
    at_endpoint, elsewhere = (
        (f"--rdzv-conf=is_host={host},last_call_timeout={last_call}", f"--local-addr={address}")
        for host, address in ((1, "127.0.0.2"), (0, "127.0.0.3"))
    )
    first, other = job.start(*at_endpoint), job.start(*elsewhere)
    job.await_size(first, other, size=2)
    first.send(signal.SIGKILL)
    job.await_size(other, size=1)
    return job, other, at_endpoint, elsewhere


def test_a_node_comes_back_to_the_endpoint_and_finds_the_job_elsewhere(site: Site) -> None:
    job, other, at_endpoint, elsewhere = left_elsewhere(site, last_call=2)
    back = job.start(*at_endpoint)
    workers = job.await_size(other, back, size=2)
    assert sorted(worker.rank for worker in workers) == [0, 1]
    newcomer = job.start(*elsewhere)  # whoever is at the endpoint tells it where to go
    workers = job.await_size(other, back, newcomer, size=3)
    assert sorted(worker.rank for worker in workers) == [0, 1, 2]
    job.stop()
    for node in (other, newcomer):
        finish(node)
    said = [line[:6] for line in finish(back) if line.startswith("up")]
    assert said[-2:] == ["up 1/2", "up 1/3"]  # on a slow machine it may have begun alone before


def test_a_node_that_has_begun_alone_at_the_endpoint_joins_the_job_when_it_hears_of_it(
    site: Site,
) -> None:
    job, other, at_endpoint, _ = left_elsewhere(site, last_call=0.3)
    other.send(signal.SIGSTOP)  # nobody tells the next one of it
    back = job.start(*at_endpoint)
    job.await_size(back, size=1)
    other.send(signal.SIGCONT)
    job.await_size(other, back, size=2)
    assert "the job has gone on elsewhere; joining it there" in "\n".join(back.lines)
    job.stop()
    finish(other)
    finish(back)


def test_workers_are_numbered_node_by_node(site: Site) -> None:
    flags = ("--nnodes=2", "--nproc-per-node=2", *meeting_on_loopback())
    script = str(SCRIPTS / "print_env.py")
    nodes = [torchrun(site, *flags, script, PET_ROLE=role) for role in ("a", "b")]
    told = [json.loads(line) for node in nodes for line in finish(node)]
    places = sorted((e["RANK"], e["GROUP_RANK"], e["LOCAL_RANK"]) for e in told)
    assert places == [("0", "0", "0"), ("1", "0", "1"), ("2", "1", "0"), ("3", "1", "1")]
    assert {e["TORCHELASTIC_RUN_ID"] for e in told} == {"meeting"}
    assert len({e["MASTER_PORT"] for e in told}) == 1
    assert {(e["WORLD_SIZE"], e["LOCAL_WORLD_SIZE"], e["GROUP_WORLD_SIZE"]) for e in told} == {
        ("4", "2", "2")
    }


def test_static_nodes_have_the_ranks_they_were_given(site: Site) -> None:
    port = free_port()
    job = Job(site, "--nnodes=3", "--master-addr=127.0.0.1", f"--master-port={port}")
    last, middle = job.start("--node-rank=2"), job.start("--node-rank=1")
    first = job.start("--node-rank=0")
    workers = job.await_size(first, middle, last, size=3)
    assert [worker.rank for worker in workers] == [0, 1, 2]
    job.stop()
    assert [finish(node)[-1].split()[5] for node in (first, middle, last)] == ["0", "1", "2"]


def test_workers_of_static_nodes_meet_at_the_master_port_in_every_round(site: Site) -> None:
    port = free_port()
    flags = ("--nnodes=2", f"--master-port={port}", "--max-restarts=1")
    job = Job(site, *flags, script="meets.py")
    other, first = job.start("--node-rank=1"), job.start("--node-rank=0")
    met = f"met 2 at {port}"
    for node in (first, other):
        node.says(met, within=90)
    (site.folder / "fail-1").touch()
    for node in (first, other):
        node.says(met, times=2, within=90)
    other.send(signal.SIGKILL)
    newcomer = job.start("--node-rank=1")  # which knows the job by that port alone
    newcomer.says(met, within=90)
    first.says(met, times=3, within=90)
    job.stop()
    finish(newcomer)
    finish(first)


def test_min_nodes_are_enough_after_the_last_call(site: Site) -> None:
    meeting = meeting_on_loopback()[:-1]
    job = Job(site, "--nnodes=2:4", *meeting, "--rdzv-conf=last_call_timeout=0.2")
    first = job.start()
    first_line = re.compile(r"up \d/2 ")
    second = job.start()
    job.await_size(first, second, size=2)
    assert all(first_line.match(node.lines[-1]) for node in (first, second))
    job.stop()
    finish(first)
    finish(second)


def test_a_job_of_another_name_at_the_same_endpoint_is_not_joined(site: Site) -> None:
    flags = meeting_on_loopback()
    job = Job(site, "--nnodes=1:2", *flags)
    node = job.start()
    job.await_size(node, size=1)
    stranger = job.start("--rdzv-id=another")
    assert stranger.ends() == 1
    assert "another --rdzv-id" in stranger.lines[-1] and len(stranger.lines) == 1
    assert latest(node) == job.await_size(node, size=1)[0]
    job.stop()
    finish(node)


def test_an_endpoint_where_nobody_is_ends_in_one_line(site: Site) -> None:
    endpoint = f"--rdzv-endpoint=127.0.0.1:{free_port()}"
    conf = "--rdzv-conf=is_host=false,join_timeout=0.5"
    node = Job(site, "--nnodes=2", "--rdzv-backend=c10d", endpoint, conf).start()
    assert node.ends() == 1
    assert len(node.lines) == 1 and "no torchrun answers at --rdzv-endpoint" in node.lines[0]
    eventually(lambda: not site.processes(), within=2.0)


@pytest.mark.slow
def test_a_node_that_stood_still_finds_the_job_elsewhere_and_joins_it(site: Site) -> None:
    conf = "--rdzv-conf=last_call_timeout=0.3,keep_alive_interval=1,keep_alive_max_attempt=1"
    job = Job(site, "--nnodes=1:2", *meeting_on_loopback()[:-1], conf)
    host = job.start()
    job.await_size(host, size=1)
    other = job.start()
    before = {worker.pid for worker in job.await_size(host, other, size=2)}
    host.send(signal.SIGSTOP)
    job.await_size(other, size=1)
    host.send(signal.SIGCONT)
    host.says("the job has gone on elsewhere; joining it there")
    host.says("up 0/2 ", times=2)
    after = job.await_size(host, other, size=2)
    assert not before & {worker.pid for worker in after}
    assert sorted(worker.rank for worker in after) == [0, 1]
    job.stop()
    finish(host)
    finish(other)


def test_who_stopped_a_job_is_written_down(site: Site) -> None:
    meeting = meeting_on_loopback()
    job = Job(site, "--nnodes=1", *meeting)
    node = job.start()
    job.await_size(node, size=1)
    secret = secret_of("meeting", True, site.env)
    wire = dial_blocking(meeting[1].partition("=")[2], "client", "ada/7/4711", secret, 10.0)
    wire.send(StopRequested("enough"))
    assert node.ends(30.0) != 0
    wire.close()
    (line,) = (Path(site.env["MIDFLIGHT_HOME"]) / TORCHRUN_AUDIT).read_text().splitlines()
    said = json.loads(line)
    assert (said["user"], said["what"], said["reason"]) == ("ada", "stop meeting", "enough")
