"""Real training under torchrun: DDP with checkpoints, Midflight in place, and guide 4's printer."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest

from midflight import shims
from tests.run.site import Launched, Site
from tests.store.etcd_process import Etcd
from tests.torchelastic.nodes import Job, finish, meeting_on_loopback, torchrun

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "08-torchrun-environment"
PATIENCE = 90.0


def begun_from(lines: list[str]) -> list[int]:
    """The steps that each start of a worker found done."""
    return [int(found) for found in re.findall(r"up .* from (\d+) pid", "\n".join(lines))]


def test_ddp_finds_its_checkpoint_after_a_failure_and_the_second_is_summed_up(site: Site) -> None:
    flags = ("--standalone", "--nproc-per-node=2", "--max-restarts=1", "--warm=2")
    job = Job(site, *flags, script="plain_ddp.py")
    node = job.start(words=("raise",))
    node.says("attempt 1 ", times=2, within=PATIENCE)
    job.stop()
    finish(node, PATIENCE)
    assert begun_from(node.lines)[:2] == [0, 0] and min(begun_from(node.lines)[2:]) >= 3
    (site.folder / "checkpoint.pt").unlink()
    (site.folder / "stop").unlink()
    failing = Job(site, *flags[:2], "--warm=2", script="plain_ddp.py").start(words=("raise",))
    assert failing.ends(PATIENCE) == 1
    text = "\n".join(failing.lines)
    root = text.partition("Root Cause (first observed failure):")[2]
    assert "rank      : 1 (local_rank: 1)" in root
    assert "ValueError: the third step is too much" in root
    assert "exitcode  : 1 (pid:" in root and "attempt_0/1/error.json" in root


def test_ddp_survives_newcomers_and_the_death_of_the_node_with_the_coordinator(site: Site) -> None:
    flags = ("--nnodes=1:2", "--warm=1", *meeting_on_loopback())
    job = Job(site, *flags, script="plain_ddp.py")
    host = job.start()
    job.await_size(host, size=1, within=PATIENCE)
    newcomer = job.start()
    job.await_size(host, newcomer, size=2, within=PATIENCE)
    (site.folder / "checkpoint.pt").stat()
    host.send(signal.SIGKILL)
    job.await_size(newcomer, size=1, within=PATIENCE)
    job.stop()
    lines = finish(newcomer, PATIENCE)
    first, second = begun_from(lines)
    assert 0 < first <= second
    assert all("attempt 0" in line for line in lines if line.startswith("up")), "no failure"


def test_a_script_that_calls_midflight_is_resized_in_place(site: Site) -> None:
    flags = ("--nnodes=1:3", "--warm=1", *meeting_on_loopback())
    job = Job(site, *flags, script="in_place.py")
    host, second = job.start(), job.start()
    job.await_size(host, second, size=2, within=PATIENCE)
    third = job.start()
    before = job.await_size(host, second, third, size=3, within=PATIENCE)
    host.send(signal.SIGKILL)
    after = job.await_size(second, third, size=2, within=PATIENCE)
    assert {w.pid for w in after} == {w.pid for w in before[1:]}, "they kept their memory"
    newcomer = job.start()
    workers = job.await_size(second, third, newcomer, size=3, within=PATIENCE)
    assert [w.pid for w in workers[:2]] == [w.pid for w in after]
    third.send(signal.SIGTERM)
    assert third.ends(5.0) == 143
    job.await_size(second, newcomer, size=2, within=PATIENCE)
    job.stop()
    finish(second, PATIENCE)
    finish(newcomer, PATIENCE)


def test_the_environment_printer_shows_what_the_guide_shows(site: Site, etcd: Etcd) -> None:
    flags = ("--nnode=1", "--nproc_per_node=2", "--rdzv_backend=etcd", "--max_restarts=100")
    endpoint = f"--rdzv_endpoint=127.0.0.1:{etcd.ports[0]}"
    node = torchrun(site, *flags, endpoint, "--rdzv_id=guide", str(EXAMPLE / "main.py"))
    text = "\n".join(finish(node, PATIENCE)) + "\n"
    line = "=" * 54
    tables = re.findall(
        rf"{line}\nEnvironment variables set by the agent on PID (\d+):\n"
        r"\{'GROUP_RANK': '0',\n 'LOCAL_RANK': '(\d)',\n 'MASTER_ADDR': '(\S+)',\n"
        r" 'MASTER_PORT': '(\d+)',\n 'RANK': '(\d)',\n 'TORCHELASTIC_MAX_RESTARTS': '100',\n"
        rf" 'TORCHELASTIC_RESTART_COUNT': '0',\n 'WORLD_SIZE': '2'\}}\n{line}\n\n",
        text,
    )
    assert sorted(table[1] + table[4] for table in tables) == ["00", "11"], text
    assert len({table[2:4] for table in tables}) == 1
    for pid, *_, rank in tables:
        assert f"On PID {pid}, after init process group, rank={rank}, world_size = 2\n" in text


GUIDE_4 = """\
Etcd machines: ['http://ETCD']
Attempting to join next rendezvous
New rendezvous state created: {'status': 'joinable', 'version': '1', 'participants': []}
Joined rendezvous version 1 as rank 0. Full state: {'status': 'frozen', 'version': '1', \
'participants': [0], 'keep_alives': []}
Waiting for remaining peers.
All peers arrived. Confirming membership.
Waiting for confirmations from all peers.
Rendezvous version 1 is complete. Final state: {'status': 'final', 'version': '1', \
'participants': [0], 'keep_alives': ['/torchelastic/p2p/run_None/rdzv/v_1/rank_0'], \
'num_workers_waiting': 0}
Creating EtcdStore as the c10d::Store implementation
"""


def test_the_log_of_the_old_launcher_is_that_of_guide_4(site: Site, etcd: Etcd) -> None:
    """With the entrypoint of its image; 'None' is what that launcher calls a job without a name."""
    place = f"localhost:{etcd.ports[0]}"
    words = ["-m", "torchelastic.distributed.launch", "--nnode=1", "--nproc_per_node=2"]
    words += ["--rdzv_backend=etcd", f"--rdzv_endpoint={place}", "--rdzv_id=None"]
    env = {**site.env, **shims.environment(site.env), "LOGLEVEL": "INFO"}
    run = Launched([sys.executable, *words, str(EXAMPLE / "main.py")], env, site.folder)
    lines = finish(run, PATIENCE)
    stamped = [re.fullmatch(r"INFO \d{4}-\d\d-\d\d [\d:]{8},\d{3} (.*)", line) for line in lines]
    told = "".join(f"{line[1]}\n" for line in stamped if line)
    assert told.replace(f"127.0.0.1:{etcd.ports[0]}", "ETCD") == GUIDE_4


def test_the_example_runs_with_an_etcd_of_its_own(site: Site, etcd_binary: Path) -> None:
    folders = (str(etcd_binary.parent), str(Path(sys.executable).parent), os.environ["PATH"])
    env = {**site.env, "PATH": ":".join(folders), "OMP_NUM_THREADS": "1"}
    run = Launched(["sh", str(EXAMPLE / "run.sh")], env, site.folder)
    text = "\n".join(finish(run, PATIENCE))
    assert sorted(re.findall(r"'GROUP_RANK': '(\d)'", text)) == ["0", "1"], text
    assert sorted(re.findall(r"rank=(\d), world_size = 2", text)) == ["0", "1"], text
