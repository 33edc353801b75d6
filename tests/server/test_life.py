"""A server's life: one per folder, started by whoever needs it, ended without disturbing jobs."""

import contextlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from midflight.client import Client
from midflight.errors import Refused, StoreError, Unreachable
from midflight.protocol.audit import AUDIT
from midflight.server.folder import HELD, JOURNAL, LOG, SOCKET
from midflight.server.startup import ensure, running, wait_for_end
from tests.run.site import eventually
from tests.server.site import Site, spec

pytestmark = pytest.mark.slow

STRANGER = 12345  # a user that is not this one


def test_a_command_waits_for_a_server_that_is_ending_and_starts_the_next(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", site.env["PYTHONPATH"])
    former = site.serve()
    pid = former.status()["pid"]
    former.stop()
    client = ensure(site.home)
    try:
        assert client.status()["pid"] != pid
        assert client.jobs("*") == []
    finally:
        client.stop()
        assert wait_for_end(site.home, 10)


def test_a_second_server_says_who_has_the_folder(site: Site) -> None:
    client = site.serve()
    first = site.process
    said = site.fails()
    assert f"process id {first.pid}" in said
    assert site.process.returncode == HELD
    assert client.status()["pid"] == first.pid


@pytest.mark.parametrize("way", [signal.SIGTERM, signal.SIGINT, None])
def test_a_server_ends_at_once_and_its_jobs_go_on(site: Site, way: signal.Signals | None) -> None:
    client = site.serve()
    client.submit(spec())
    client.wait("default", "bert", "running", 10)
    cut: list[Exception] = []

    def wait() -> None:
        try:
            client.wait("default", "bert", "finished", 60)
        except Unreachable as error:
            cut.append(error)

    lines = client.logs("default", "bert", {"follow": "1"})
    assert next(lines)
    poll = threading.Thread(target=wait)
    poll.start()
    eventually(lambda: connections(site.process.pid) >= 2)
    begun = time.monotonic()
    if way is None:
        client.stop()
    else:
        site.process.send_signal(way)
    assert site.process.wait(10) == 0
    assert time.monotonic() - begun < 5  # 2 s, where nothing else goes on
    poll.join(10)
    assert len(cut) == 1
    assert list(lines) == []
    assert not (site.home / SOCKET).exists()
    living = sorted(path.name for path in (site.home / "fake").iterdir())
    assert len(living) == 3
    again = site.serve()
    assert again.job("default", "bert")["status"] == "RUNNING"
    assert sorted(path.name for path in (site.home / "fake").iterdir()) == living


def connections(pid: int) -> int:
    """Sockets that a process has open, but for the listening one."""
    links = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            links.append(os.readlink(path))
    return sum(link.startswith("socket:") for link in links) - 3  # and the loop's own pair


def test_a_long_poll_ends_when_the_caller_goes_away(site: Site) -> None:
    client = site.serve()
    client.submit(spec())
    client.wait("default", "bert", "running", 10)
    eventually(lambda: connections(site.process.pid) == 0)
    callers = []
    for path in ("wait?until=finished&timeout=60", "logs?follow=true"):
        caller = socket.socket(socket.AF_UNIX)
        caller.connect(str(client.path))
        caller.sendall(f"GET /api/v1/jobs/default/bert/{path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        callers.append(caller)
    eventually(lambda: connections(site.process.pid) == 2)
    for caller in callers:
        caller.close()
    eventually(lambda: connections(site.process.pid) == 0)
    assert "bug" not in site.log


def test_a_stale_socket_is_replaced(site: Site) -> None:
    site.home.mkdir(mode=0o755)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(site.home / SOCKET))
    assert running(site.home) is None
    assert site.serve().status()["pid"] == site.process.pid
    assert site.home.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("name", [SOCKET, ""])
def test_what_belongs_to_another_user_is_refused(site: Site, name: str) -> None:
    site.home.mkdir(mode=0o700)
    if name:
        with socket.socket(socket.AF_UNIX) as theirs:
            theirs.bind(str(site.home / name))
    os.chown(site.home / name, STRANGER, STRANGER)
    assert f"belongs to another user (uid {STRANGER}" in site.fails()
    with pytest.raises(Refused, match="belongs to another user"):
        ensure(site.home)
    assert (site.home / name).stat().st_uid == STRANGER


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_who_gets_at_the_socket_is_not_served(site: Site) -> None:
    client = site.serve()
    for folder in (site.home, *site.home.parents):
        if folder.owner() == "root" and not folder.stat().st_mode & 0o001:
            folder.chmod(0o755)
    client.path.chmod(0o666)
    code = (
        f"import os, socket; os.setuid({STRANGER}); s = socket.socket(socket.AF_UNIX)\n"
        f"s.settimeout(20); s.connect({str(client.path)!r})\n"
        "request = b'GET /api/v1/status HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n'\n"
        "try: s.sendall(request); print(s.recv(99))\n"
        "except OSError: print(b'')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert done.stdout.strip() == "b''", done
    assert f"user {STRANGER} was refused" in site.log
    [noted] = map(json.loads, (site.home / AUDIT).read_text().splitlines())
    assert (noted["uid"], noted["what"], noted["outcome"]) == (STRANGER, "connect", "refused")
    assert client.status()["pid"] == site.process.pid


def test_a_newer_journal_is_refused(site: Site) -> None:
    site.serve().stop()
    assert site.process.wait(10) == 0
    with sqlite3.connect(site.home / JOURNAL) as journal:
        journal.execute("UPDATE meta SET version = 9, program = '9.0'")
    journal.close()
    said = site.fails()
    assert "written by a newer Midflight (9.0" in said
    assert "another MIDFLIGHT_HOME" in said
    with pytest.raises(Unreachable, match="written by a newer Midflight"):
        ensure(site.home)


def test_a_broken_journal_is_refused(site: Site) -> None:
    site.home.mkdir(mode=0o700)
    (site.home / JOURNAL).write_bytes(b"something else\n" * 1000)
    assert "is damaged" in site.fails()
    assert (site.home / JOURNAL).read_bytes() == b"something else\n" * 1000
    assert not (site.home / SOCKET).exists()


def test_two_commands_at_once_start_one_server(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", site.env["PYTHONPATH"])
    found: list[Client] = []
    starts = [threading.Thread(target=lambda: found.append(ensure(site.home))) for _ in range(3)]
    try:
        for start in starts:
            start.start()
        for start in starts:
            start.join(30)
        assert len(found) == 3
        assert len({client.status()["pid"] for client in found}) == 1
        assert (site.home / LOG).read_text().count("serves") == 1
        assert len(processes(site.home)) == 1
    finally:
        client = running(site.home)
        assert client is not None
        client.stop()
        assert wait_for_end(site.home, 10)
    eventually(lambda: processes(site.home) == [])


def processes(home: Path) -> list[int]:
    """Those that were started for this folder, and live."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # gone meanwhile
        if str(home) in words and "midflight.server" in words:
            found.append(int(path.parent.name))
    return found


def test_up_and_down_by_hand(site: Site) -> None:
    site.serve()
    done = site.command("up", "--nodes", "2", "--gpus-per-node", "4")
    assert done.returncode == 0, done.stderr
    assert f"process {site.process.pid}" in done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["NAME", "node-1", "node-2"]
    client = Client(site.home / SOCKET)
    client.submit(spec())
    client.wait("default", "bert", "running", 10)
    done = site.command("down")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "1 job still running" in done.stderr
    site.serve()
    done = site.command("down", "--jobs")
    assert "1 job was deleted" in done.stderr, done.stderr
    assert "no job was running" in done.stderr
    assert list((site.home / "fake").iterdir()) == []
    assert "no server is running" in site.command("down").stderr
    done = site.command("up", "--gpus-per-node", "4")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True
    )
    if made.returncode:
        pytest.skip("a small disk can only be made by root")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_on_a_full_disk_commands_are_refused_and_nothing_is_lost(small_disk: Path) -> None:
    site = Site(small_disk / "home")
    try:
        client = site.serve()
        client.submit(spec("first"))
        client.wait("default", "first", "running", 10)
        filler = small_disk / "filler"
        fill(filler)
        accepted = []
        with pytest.raises(Unreachable, match=r"full.*nothing was changed"):
            for number in range(200):
                client.submit(spec(f"job-{number}", command="x" * 4000))
                accepted.append(f"job-{number}")
        names = [job["name"] for job in client.jobs("default")]
        assert names == ["first", *accepted]
        client.chaos("default", "first", "kill", "first-worker-1")  # an event that has to wait
        filler.unlink()
        eventually(
            lambda: (
                client.job("default", "first")["status"] == "RUNNING"
                and any("worker-1" in e["source"] for e in client.events("default", "first"))
            )
        )
        client.submit(spec("last"))
        site.kill()
        again = site.serve()
        assert [job["name"] for job in again.jobs("default")] == [*names, "last"]
    finally:
        site.close()


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            return


def test_the_log_says_what_is_of_note_in_lines(site: Site) -> None:
    client = site.serve()
    client.submit(spec())
    client.stop()
    site.process.wait(10)
    lines = (site.home / LOG).read_text().splitlines()
    assert ["serves" in lines[0], "has ended" in lines[-1]] == [True, True], lines
    assert StoreError.__name__ not in site.log
