"""Logs, attach and top against pods that really run; the part of an operator is done by hand."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from midflight.controller.state import Phase
from midflight.kubernetes.api.paths import path
from tests.kubernetes.plane.cluster import Cluster
from tests.kubernetes.verb_site import PATIENCE, Site
from tests.kubernetes.verb_terminal import typing_in


@pytest.fixture
def site(cluster: Cluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Site]:
    with typing_in(cluster.plane, tmp_path, capfd) as made:
        yield made
        cluster.clear(made.namespace)


@pytest.fixture
def demo(site: Site) -> Site:
    """A job that runs, with no pods yet."""
    site.submit("demo", "--gpus=1")
    site.state("demo")
    return site


# --- logs -----------------------------------------------------------------------------------------


def test_the_log_is_the_chiefs_where_nothing_is_said(demo: Site) -> None:
    demo.pod("demo", "launcher", "for i in 1 2 3; do echo line $i; done")
    demo.pod("demo", "worker-0", "echo of worker; exit 3")
    for name, phase in (("demo-launcher", "Succeeded"), ("demo-worker-0", "Failed")):
        demo.pod_is(name, phase)
    assert demo.types("logs", "demo").out == "line 1\nline 2\nline 3\n"
    assert demo.types("logs", "demo", "-t", "1").out == "line 3\n"
    assert demo.types("logs", "demo", "-i", "demo-worker-0").out == "of worker\n"
    stamped = demo.types("logs", "demo", "--timestamps", "--since=1h").lines
    assert [line[1:] for line in stamped] == [["line", "1"], ["line", "2"], ["line", "3"]]
    assert all(line[0].startswith("20") and line[0].endswith("Z") for line in stamped)
    assert demo.types("logs", "demo", "--since-time=2099-01-01T00:00:00Z").out == ""
    shown = demo.types("get", "demo", "-o", "wide").out
    assert "Completed" in shown and "its program ended with code 3" in shown


def test_logs_of_all_instances_are_merged_by_time(demo: Site) -> None:
    demo.pod("demo", "launcher", "echo one; sleep 1; echo three")
    demo.pod("demo", "worker-0", "sleep 0.5; echo two")
    for name in ("demo-launcher", "demo-worker-0"):
        demo.pod_is(name, "Succeeded")
    lines = demo.types("logs", "demo", "--all").out.splitlines()
    assert sorted(lines) == [
        "[demo-launcher] one",
        "[demo-launcher] three",
        "[demo-worker-0] two",
    ]
    stamps = [
        line.split()[1]
        for line in demo.types("logs", "demo", "--all", "--timestamps").out.splitlines()
    ]
    assert stamps == sorted(stamps) and len(stamps) == 3
    assert demo.types("logs", "demo", "--all", "-t", "1").out.splitlines() == lines[-1:]


def test_a_pod_that_is_being_prepared_shows_the_log_of_what_prepares_it(demo: Site) -> None:
    command = ["sh", "-c", "echo cloning; sleep 100"]
    init = [{"name": "init-code", "image": "example", "command": command}]
    demo.pod("demo", "launcher", "echo training", initContainers=init)
    seen = ""
    deadline = time.monotonic() + PATIENCE
    while seen != "cloning\n" and time.monotonic() < deadline:
        seen = demo.types("logs", "demo", code=None).out
    assert seen == "cloning\n"
    assert "Init:0/1" in demo.types("get", "demo").out


def test_the_log_of_a_pod_that_failed_before_is_shown_where_the_operator_has_kept_it(
    demo: Site,
) -> None:
    demo.pod("demo", "launcher", "echo now")
    data = {
        "20260101T000000Z.demo-worker-0.1": "former\n",
        "20260102T000000Z.demo-worker-0.2": "one\ntwo\n",
        "20260101T120000Z.demo-launcher.1": "of launcher\n",
    }
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "demo-logs"}}
    demo.api.call("POST", path("ConfigMap", demo.namespace), {**made, "data": data})
    assert demo.types("logs", "demo", "--previous").out == "of launcher\n"
    assert demo.types("logs", "demo", "-p", "-i", "demo-worker-0").out == "one\ntwo\n"
    assert demo.types("logs", "demo", "-p", "-i", "demo-worker-0", "-t1").out == "two\n"
    assert demo.types("logs", "demo", "-p", "--all").out.splitlines() == [
        "[demo-launcher] of launcher",
        "[demo-worker-0] one",
        "[demo-worker-0] two",
    ]
    said = demo.types("logs", "demo", "-p", "-i", "demo-worker-1", code=1)
    assert "no log of a former pod of demo-worker-1 is kept" in said.err
    assert "instances with one: demo-launcher, demo-worker-0" in said.err
    said = demo.types("logs", "demo", "-p", "-f", code=2)
    assert "wanted --previous or --follow, got both" in said.err


def test_what_has_no_log_yet_is_said_with_the_reason(demo: Site) -> None:
    said = demo.types("logs", "demo", "-i", "demo-worker-7", code=1)
    assert "invalid instance name demo-worker-7 in job demo" in said.err
    demo.pod("demo", "launcher", "true", gpus=99)
    for _, found in demo.api.watch(path("Pod", demo.namespace), PATIENCE):
        if (found.get("status") or {}).get("conditions"):
            break
    said = demo.types("logs", "demo", code=1)
    assert "instance demo-launcher is not running" in said.err
    assert "Insufficient nvidia.com/gpu" in said.err
    assert "Insufficient nvidia.com/gpu" in demo.types("get", "demo", "-o", "wide").out
    said = demo.types("logs", "demo", "-c", "other", code=2)
    assert "demo-launcher has no container 'other'; there are et" in said.err


def test_following_goes_on_over_a_new_attempt_until_the_job_is_over(demo: Site) -> None:
    demo.pod("demo", "launcher", "echo first")
    query = {"follow": "true"}
    pieces = demo.client.logs(demo.namespace, "demo", query)
    assert next(pieces) == b"first\n"
    demo.api.delete(path("Pod", demo.namespace, "demo-launcher"), grace=0)
    demo.pod("demo", "launcher", "echo second")
    assert next(pieces) == b"second\n"
    demo.state("demo", phase=Phase.SUCCEEDED, ended_at=time.time())
    assert list(pieces) == []


def test_following_all_finds_workers_that_come_later(demo: Site) -> None:
    demo.pod("demo", "launcher", "echo chief; sleep 100")
    demo.pod_is("demo-launcher", "Running")
    pieces = demo.client.logs(demo.namespace, "demo", {"follow": "true", "all": "true"})
    assert next(pieces) == b"[demo-launcher] chief\n"
    demo.pod("demo", "worker-0", "echo late")
    assert next(pieces) == b"[demo-worker-0] late\n"
    demo.state("demo", phase=Phase.SUCCEEDED, ended_at=time.time())
    assert list(pieces) == []


# --- attach and chaos -----------------------------------------------------------------------------


def test_a_command_runs_in_a_pod_with_its_own_exit_code(demo: Site) -> None:
    demo.pod("demo", "launcher")
    demo.pod_is("demo-launcher", "Running")
    said = demo.types("attach", "demo", "--", "sh", "-c", "echo out; echo err >&2; exit 7", code=7)
    assert (said.out, said.err) == ("out\n", "err\n")
    said = demo.types("attach", "demo", "-i", "demo-worker-0", "ls", code=1)
    assert "instance demo-worker-0 has no pod now" in said.err
    said = demo.types("attach", "demo", "-c", "x", "ls", code=2)
    assert "has no container 'x'" in said.err


def test_what_is_piped_in_reaches_the_command(demo: Site, tmp_path: Path) -> None:
    demo.pod("demo", "launcher")
    demo.pod_is("demo-launcher", "Running")
    done = subprocess.run(
        [sys.executable, "-m", "midflight.cli", *_words(demo), "attach", "demo", "--", "cat"],
        input="to there and back",
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "MIDFLIGHT_HOME": str(tmp_path)},
    )
    assert (done.returncode, done.stdout) == (0, "to there and back")


def _words(site: Site) -> list[str]:
    return ["--config", str(site.kubeconfig), "-n", site.namespace]


def test_a_terminal_is_one_there_too_with_its_size_and_ctrl_c(demo: Site, tmp_path: Path) -> None:
    demo.pod("demo", "launcher")
    demo.pod_is("demo-launcher", "Running")
    # A terminal's size reaches it a moment after the command has begun.
    size = 'until [ "$(stty size)" = "33 99" ]; do sleep 0.1; done; stty size'
    script = f"trap 'echo caught; exit 9' INT; {size}; while true; do sleep 0.1; done"
    command = ["attach", "demo", "--", "sh", "-c", script]
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 99, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "midflight.cli", *_words(demo), *command],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "MIDFLIGHT_HOME": str(tmp_path)},
    )
    os.close(theirs)
    timer = threading.Timer(PATIENCE, process.kill)
    timer.start()
    try:
        seen = _read_until(ours, b"33 99")
        os.write(ours, b"\x03")
        seen += _read_until(ours, b"caught")
        assert process.wait() == 9, seen
    finally:
        timer.cancel()
        process.kill()
        process.wait()
        os.close(ours)


def _read_until(descriptor: int, wanted: bytes) -> bytes:
    seen = b""
    while wanted not in seen:
        seen += os.read(descriptor, 4096)
    return seen


def test_a_pod_is_killed_at_once(demo: Site) -> None:
    demo.pod("demo", "launcher")
    demo.pod("demo", "worker-0")
    demo.pod_is("demo-worker-0", "Running")
    assert "demo-worker-0 was killed" in demo.types("chaos", "kill", "demo", "demo-worker-0").out
    assert demo.get("Pod", "demo-worker-0") is None


# --- nodes ----------------------------------------------------------------------------------------


def test_nodes_are_shown_with_all_their_columns_and_the_gpus_that_are_taken(demo: Site) -> None:
    demo.pod("demo", "worker-0", gpus=3)
    node = demo.pod_is("demo-worker-0", "Running")["spec"]["nodeName"]
    said = demo.types("top", "node")
    header, *rows = said.lines
    assert header == ["NAME", "IPADDRESS", "ROLE", "STATUS", "GPU(Total)", "GPU(Allocated)"]
    found = {row[0]: row[1:] for row in rows if len(row) == 6}
    assert found[node][1:] == ["<none>", "ready", "4", "3"]
    assert found[node][0].startswith("127.")
    assert "Allocated/Total GPUs In Cluster:\n3/12 (25%)" in said.out
    details = demo.types("top", "node", node, "-d").out
    assert [demo.namespace, "demo", "demo-worker-0"] in [
        line.split() for line in details.split("\n")
    ]
    job = json.loads(demo.types("get", "demo", "-o", "json").out)
    assert (job["allocatedGPUs"], job["instances"][1]["node"]) == (3, node)
    assert "Allocated/Requested GPUs of Job: 3/2" in demo.types("get", "demo", "-g").out
    assert demo.types("top", "job", "demo").out.startswith("Name:")


def test_a_node_is_cordoned_and_comes_back(site: Site) -> None:
    assert site.types("node", "cordon", "node-2").out == "node-2 is Ready,SchedulingDisabled\n"
    assert site.types("node", "return", "node-2").out == "node-2 is Ready\n"
