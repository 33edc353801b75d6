"""A job's folder on a real disk: rights, scripts, hosts, port, and names that lead out of it."""

import os
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from midflight.atomic_file import write
from midflight.backends.local.folder import PORTS, JobFolder, free_port
from midflight.errors import UsageError


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    made = JobFolder.of(tmp_path, "default/demo")
    made.create(sys.executable)
    return made


def run(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )


def test_the_folder_and_its_parts_are_its_owners_alone(folder: JobFolder, tmp_path: Path) -> None:
    assert folder.path == tmp_path / "jobs" / "default" / "demo"
    for part in ("", "instances", "edl", "bin", "run", "code", "work"):
        assert stat.S_IMODE((folder.path / part).stat().st_mode) == 0o700


def test_making_it_again_keeps_what_is_there(folder: JobFolder) -> None:
    folder.write_hosts({"demo-worker-0": 1})
    port = folder.port()
    folder.create(sys.executable)
    assert folder.hostfile.read_text() == "demo-worker-0:1\n"
    assert folder.port() == port


@pytest.mark.parametrize("place", ["edl", "bin"])
def test_the_discovery_script_prints_the_hosts(folder: JobFolder, place: str) -> None:
    script = folder.path / place / "discover_hosts.sh"
    assert run(script).stdout == ""
    folder.write_hosts({"demo-worker-0": 2, "demo-worker-3": 2})
    done = run(script, PATH="/usr/bin:/bin")
    assert (done.returncode, done.stdout) == (0, "demo-worker-0:2\ndemo-worker-3:2\n")


def test_discovery_never_sees_a_part_of_the_hosts(folder: JobFolder) -> None:
    few, many = {"a": 1}, {f"worker-{n}": 1 for n in range(500)}
    over = threading.Event()

    def rewrite() -> None:
        while not over.is_set():
            folder.write_hosts(few)
            folder.write_hosts(many)

    writer = threading.Thread(target=rewrite)
    writer.start()
    try:
        counts = {
            len(run(folder.path / "edl/discover_hosts.sh").stdout.splitlines()) for _ in range(20)
        }
    finally:
        over.set()
        writer.join(30)
    assert counts <= {0, 1, 500}


def test_the_folder_of_a_path_with_blanks_and_quotes_works(tmp_path: Path) -> None:
    folder = JobFolder.of(tmp_path / "it's a 'home'", "default/demo")
    folder.create(sys.executable)
    folder.write_hosts({"w": 1})
    assert run(folder.path / "bin/discover_hosts.sh").stdout == "w:1\n"


@pytest.mark.slow
@pytest.mark.parametrize("command", ["midflight", "arena"])
def test_the_jobs_own_commands_are_this_program(folder: JobFolder, command: str) -> None:
    (folder.work / "argparse.py").write_text("raise SystemExit('a file of the user was imported')")
    done = subprocess.run(
        [folder.path / "bin" / command, "--version"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=folder.work,
    )
    assert done.returncode == 0, done.stderr
    assert "0." in done.stdout


def test_horovodrun_is_a_verb_of_this_program(folder: JobFolder) -> None:
    text = (folder.path / "bin/horovodrun").read_text()
    assert text.endswith('midflight.cli.main horovodrun "$@"\n')


def test_a_port_is_chosen_once_and_differs_from_job_to_job(tmp_path: Path) -> None:
    folders = [JobFolder.of(tmp_path, f"space-{n % 2}/job-{n}") for n in range(8)]
    for folder in folders:
        folder.create(sys.executable)
    ports = [folder.port() for folder in folders]
    assert len(set(ports)) == len(ports)
    assert ports == [folder.port() for folder in folders]


def test_a_port_that_is_in_use_or_spoken_for_is_not_chosen() -> None:
    with socket.create_server(("", 0)) as taken:
        port = free_port(set())
        assert port in PORTS
        assert port != taken.getsockname()[1]
    spoken_for = set(PORTS) - {port}
    assert free_port(spoken_for) not in spoken_for


@pytest.mark.parametrize(
    "key", ["default/..", "../demo", "default/a/b", "default/", "/demo", "a/.b", "a/b\n", "ä/b"]
)
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(UsageError, match="wanted a name"):
        JobFolder.of(tmp_path, key)


def test_an_instance_or_host_that_leads_elsewhere_is_refused(folder: JobFolder) -> None:
    for name in ("../../etc", "a/b", "..", "", "a\nb"):
        with pytest.raises(UsageError):
            folder.instance(name)
        with pytest.raises(UsageError):
            folder.write_hosts({name: 1})


def test_removing_it_leaves_other_jobs_and_what_links_lead_to(tmp_path: Path) -> None:
    one, two = (JobFolder.of(tmp_path, f"default/{name}") for name in ("one", "two"))
    for folder in (one, two):
        folder.create(sys.executable)
    kept = tmp_path / "data"
    kept.mkdir()
    (one.work / "data").symlink_to(kept)
    one.remove()
    assert not one.path.exists() and two.path.exists() and kept.exists()
    two.remove()
    two.remove()
    assert not two.path.parent.exists()


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="directory"):
        write(tmp_path / "taken", b"x", 0o600)
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_instances_that_start_side_by_side_are_told_the_same_port(folder: JobFolder) -> None:
    together = threading.Barrier(8)
    ports: list[int] = []

    def ask() -> None:
        together.wait(30)
        ports.append(JobFolder(folder.path).port())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(ports) == 8 and len(set(ports)) == 1
