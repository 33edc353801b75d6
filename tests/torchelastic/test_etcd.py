"""Several nodes that meet through a real etcd."""

import signal
import uuid
from base64 import b64encode
from pathlib import Path

import pytest

from tests.run.site import Site, eventually
from tests.store.conftest import StartEtcd
from tests.store.etcd_process import Etcd, free_port
from tests.torchelastic.nodes import Job, finish

pytestmark = pytest.mark.slow

CONF = "last_call_timeout=0.3,keep_alive_interval=1,keep_alive_max_attempt=2"


def meeting(server: Etcd, name: str) -> tuple[str, ...]:
    return (
        *("--rdzv_backend=etcd-v2", f"--rdzv_endpoint=127.0.0.1:{server.ports[0]}"),
        *(f"--rdzv_id={name}", f"--rdzv_conf={CONF}"),
    )


def left_in(server: Etcd, name: str) -> int:
    """How many entries of a job there are."""

    def text(key: str) -> str:
        return b64encode(key.encode()).decode()

    found = 0
    for folder in (f"/torchrun/{name}/", f"/torchrun/jobs/{name}/"):
        body = {"key": text(folder), "range_end": text(folder + "~")}
        answer = server.ask(server.ports[0], "/v3/kv/range", body)
        found += int(answer.get("count", 0))
    return found


def test_nodes_come_and_die_and_the_job_goes_on(site: Site, etcd: Etcd) -> None:
    name = f"job-{uuid.uuid4().hex}"
    job = Job(site, "--nnodes=1:3", *meeting(etcd, name))
    first, second = job.start(), job.start()
    job.await_size(first, second, size=2)
    third = job.start()
    job.await_size(first, second, third, size=3)
    hosts = [node for node in job.nodes if any("restarted with 3" in x for x in node.lines)]
    (host,) = hosts  # whoever tells what happens carries the coordinator
    rest = [node for node in job.nodes if node is not host]
    host.send(signal.SIGKILL)
    job.await_size(*rest, size=2)
    newcomer = job.start()
    job.await_size(*rest, newcomer, size=3)
    rest[0].send(signal.SIGTERM)
    assert rest[0].ends(5.0) == 143
    job.await_size(rest[1], newcomer, size=2)
    job.stop()
    finish(rest[1])
    finish(newcomer)
    eventually(lambda: left_in(etcd, name) == 0)  # the killed node's entry ends with its lease


def test_a_name_can_be_used_again_after_a_job_that_died_as_a_whole(site: Site, etcd: Etcd) -> None:
    flags = meeting(etcd, f"job-{uuid.uuid4().hex}")
    job = Job(site, "--nnodes=1", *flags)
    node = job.start()
    job.await_size(node, size=1)
    node.send(signal.SIGKILL)
    node.ends()
    again = job.start()
    job.await_size(again, size=1)
    assert not any("lost" in line for line in again.lines), "it began anew"
    job.stop()
    finish(again)


def test_training_goes_on_while_etcd_is_away(site: Site, start_etcd: StartEtcd) -> None:
    server = start_etcd()
    job = Job(site, "--nnodes=1", *meeting(server, "away"))
    node = job.start()
    (worker,) = job.await_size(node, size=1)
    server.kill()
    server.start()
    (site.folder / "stop").touch()
    lines = finish(node)
    assert [line for line in lines if line.startswith("up")] == [
        f"up 0/1 attempt 0 node 0 pid {worker.pid}"
    ]


def test_a_signal_ends_all_in_time_even_if_etcd_is_away(site: Site, start_etcd: StartEtcd) -> None:
    server = start_etcd()
    job = Job(site, "--nnodes=1", *meeting(server, "gone"))
    node = job.start()
    job.await_size(node, size=1)
    server.kill()
    node.send(signal.SIGTERM)
    assert node.ends(5.0) == 143


def test_an_etcd_with_users_lets_in_whoever_has_a_login_and_nobody_else(
    site: Site, start_etcd: StartEtcd
) -> None:
    server = start_etcd()
    port = server.ports[0]
    server.ask(port, "/v3/auth/user/add", {"name": "root", "password": "p@ss:1"})
    server.ask(port, "/v3/auth/role/add", {"name": "root"})
    server.ask(port, "/v3/auth/user/grant", {"user": "root", "role": "root"})
    server.ask(port, "/v3/auth/enable", {})
    stranger = Job(site, "--nnodes=1", *meeting(server, "strangers")).start()
    assert stranger.ends(30.0) == 1
    login = site.folder / "login"
    login.touch(0o600)
    login.write_text("root:p@ss:1\n")
    flags = list(meeting(server, "friends"))
    flags[-1] += f",login_file={login}"
    job = Job(site, "--nnodes=1", *flags)
    node = job.start()
    job.await_size(node, size=1)
    words = Path(f"/proc/{node.process.pid}/cmdline").read_bytes()
    assert b"p@ss" not in words
    job.stop()
    finish(node)
    login.chmod(0o644)
    refused = job.start()
    assert refused.ends(30.0) in (1, 2)
    assert any("can be read by others (mode 644)" in line for line in refused.lines)


def test_an_etcd_that_does_not_answer_is_named(site: Site) -> None:
    flags = ["--rdzv-backend=etcd", f"--rdzv-endpoint=127.0.0.1:{free_port()}"]
    flags += ["--rdzv-conf=join_timeout=1"]
    node = Job(site, *flags).start()
    assert node.ends(30.0) == 1
    assert len(node.lines) == 1 and "--rdzv-endpoint" in node.lines[0], node.lines
