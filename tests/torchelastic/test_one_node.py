"""torchrun on one machine: what workers are told, what is shown, and how it ends."""

import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from midflight import shims
from midflight.compat.torchelastic.rounds import round_lines
from tests.run.site import Launched, Site, eventually
from tests.torchelastic.nodes import SCRIPTS, Job, finish, torchrun

pytestmark = pytest.mark.slow

PRINT_ENV = str(SCRIPTS / "print_env.py")


def told(node: Launched) -> list[dict[str, Any]]:
    """What each worker was told, by rank."""
    found = [json.loads(line) for line in finish(node) if line.startswith("{")]
    return sorted(found, key=lambda env: env["RANK"])


def python(site: Site, name: str, code: str) -> str:
    path = site.folder / f"{name}.py"
    path.write_text(code)
    return str(path)


def test_every_variable_of_torchrun_is_set(site: Site) -> None:
    flags = ("--standalone", "--nproc-per-node=2", "--role=trainer", "--max-restarts=3")
    first, second = told(torchrun(site, *flags, PRINT_ENV, "--lr", "1"))
    assert first["argv"] == ["--lr", "1"]
    same = {
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_NAME": "trainer",
        "ROLE_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "3",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "OMP_NUM_THREADS": "1",
    }
    for rank, env in enumerate((first, second)):
        assert env.items() >= same.items()
        assert [env[n] for n in ("RANK", "LOCAL_RANK", "ROLE_RANK")] == [str(rank)] * 3
        assert env["TORCHELASTIC_ERROR_FILE"].endswith(f"/attempt_0/{rank}/error.json")
    assert first["MASTER_PORT"] == second["MASTER_PORT"] and first["MASTER_PORT"].isdecimal()
    assert re.fullmatch(r"[0-9a-f-]{36}", first["TORCHELASTIC_RUN_ID"])
    assert not list((site.folder / "temporary").iterdir()), "nothing is left behind"


def test_threads_are_limited_with_the_banner_unless_somebody_has_set_them(site: Site) -> None:
    env = {name: value for name, value in site.env.items() if name != "OMP_NUM_THREADS"}
    command = [sys.executable, "-P", "-m", "midflight.torchrun", "--standalone"]
    node = Launched([*command, "--nproc-per-node=2", PRINT_ENV], env, site.folder)
    assert [env["OMP_NUM_THREADS"] for env in told(node)] == ["1", "1"]
    assert node.lines[0] == node.lines[2] == "*" * 41
    assert node.lines[1].startswith("Setting OMP_NUM_THREADS environment variable for each process")
    node = torchrun(site, "--nproc-per-node=2", PRINT_ENV, OMP_NUM_THREADS="5")
    assert [env["OMP_NUM_THREADS"] for env in told(node)] == ["5", "5"]
    assert len(node.lines) == 2, "workers' lines are shown as they are, and nothing else"


def test_a_module_and_a_program_of_any_kind_can_be_run(site: Site) -> None:
    (site.folder / "package").mkdir()
    (site.folder / "package" / "train.py").write_text("print('as', __name__, __package__)")
    assert finish(torchrun(site, "-m", "package.train")) == ["as __main__ package"]
    program = site.folder / "program"
    program.write_text('#!/bin/sh\necho "rank $RANK $1"\n')
    program.chmod(0o755)
    assert finish(torchrun(site, "--no_python", str(program), "hello")) == ["rank 0 hello"]
    assert told(torchrun(site, "--run-path", PRINT_ENV))[0]["RANK"] == "0"
    missing = torchrun(site, "--no-python", "./nowhere")
    assert missing.ends() == 1
    assert any("no such command: ./nowhere" in line for line in missing.lines), missing.lines


def test_each_worker_can_be_shown_its_own_device_as_the_first(site: Site) -> None:
    flags = ("--standalone", "--nproc-per-node=2", "--virtual-local-rank")
    node = torchrun(site, *flags, PRINT_ENV, CUDA_VISIBLE_DEVICES="4,6")
    assert [(e["LOCAL_RANK"], e["CUDA_VISIBLE_DEVICES"]) for e in told(node)] == [
        ("0", "4"),
        ("0", "6"),
    ]


def test_as_many_workers_as_devices_are_found_by_a_fake_torch(site: Site) -> None:
    fake = site.folder / "fake"
    fake.mkdir()
    site.env["PYTHONPATH"] = f"{fake}:{site.env['PYTHONPATH']}"
    for devices, flag, found in ((3, "auto", 3), (2, "gpu", 2), (0, "gpu", None)):
        (fake / "torch.py").write_text(
            f"class accelerator:\n"
            f"    is_available = staticmethod(lambda: {devices > 0})\n"
            f"    device_count = staticmethod(lambda: {devices})\n"
            f"cuda = accelerator\n"
        )
        node = torchrun(site, "--standalone", f"--nproc-per-node={flag}", PRINT_ENV)
        if found is None:
            assert node.ends() == 2 and "torch finds none here" in node.lines[0]
        else:
            assert [env["WORLD_SIZE"] for env in told(node)] == [str(found)] * found


TALK = (
    "import os, sys\n"
    "print('out', os.environ['RANK'], flush=True)\n"
    "print('err', os.environ['RANK'], file=sys.stderr, flush=True)\n"
)


def test_streams_go_where_they_are_sent(site: Site) -> None:
    script = python(site, "talk", TALK)
    logs = site.folder / "logs"
    flags = ["--nproc-per-node=2", f"--log-dir={logs}", "--rdzv-backend=c10d", "--rdzv-id=talk"]
    flags += ["--rdzv-endpoint=localhost:0", "--redirects=1:1", "--tee=0:3"]
    lines = finish(torchrun(site, *flags, "--role=worker", script))
    assert sorted(lines) == ["[worker0]:err 0", "[worker0]:out 0", "err 1"]
    (folder,) = logs.glob("talk_*")
    files = {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*.log")}
    assert files == {
        "attempt_0/0/stdout.log": "out 0\n",
        "attempt_0/0/stderr.log": "err 0\n",
        "attempt_0/1/stdout.log": "out 1\n",
    }


def test_a_prefix_of_ones_own_and_only_some_workers_on_the_terminal(site: Site) -> None:
    script = python(site, "talk", TALK)
    flags = ("--nproc-per-node=2", "--tee=1:1", "--local-ranks-filter=1")
    template = "${role_name}-${rank}-${local_rank}> "
    node = torchrun(site, *flags, script, TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=template)
    assert sorted(finish(node)) == ["default-1-1> out 1", "err 1"]


def test_a_failure_ends_all_with_code_1_and_a_summary(site: Site) -> None:
    job = Job(site, "--standalone", "--nproc-per-node=3")
    node = job.start()
    node.says("up", times=3)
    (site.folder / "fail-2").touch()
    assert node.ends() == 1
    text = "\n".join(node.lines)
    summary = re.search(
        r"ChildFailedError: \n(=+)\n.*/hold.py FAILED\n(-+)\nFailures:\n  <NO_OTHER_FAILURES>\n\2\n"
        r"Root Cause \(first observed failure\):\n\[0\]:\n  time      : \S+\n  host      : \S+\n"
        r"  rank      : 2 \(local_rank: 2\)\n  exitcode  : 7 \(pid: (\d+)\)\s*\n"
        r"  error_file: <N/A>\n  traceback : To enable traceback see: \S+\n\1",
        text,
    )
    assert summary is not None, text
    pids = [line.split()[-1] for line in node.lines if line.startswith("up 2/3")]
    assert pids == [summary.group(3)]
    assert (
        f"failed (exitcode: 7) local_rank: 2 (pid: {pids[0]}) of binary: {sys.executable}" in text
    )


def test_a_worker_ended_by_a_signal_is_named_in_the_summary(site: Site) -> None:
    job = Job(site, "--standalone", "--nproc-per-node=2")
    node = job.start()
    node.says("up", times=2)
    pid = next(int(line.split()[-1]) for line in node.lines if line.startswith("up 1/2"))
    os.kill(pid, signal.SIGKILL)
    assert node.ends() == 1
    assert any(
        line.startswith("  exitcode  : -9 (pid:") and "SIGKILL" in line for line in node.lines
    )
    assert f"  traceback : Signal 9 (SIGKILL) received by PID {pid}" in node.lines


def test_failures_are_restarted_as_often_as_allowed(site: Site) -> None:
    job = Job(site, "--standalone", "--nproc-per-node=2", "--max-restarts=2")
    node = job.start()
    for attempt in range(2):
        node.says(f"attempt {attempt} ", times=2)
        (site.folder / f"fail-{attempt}").touch()
    node.says("attempt 2 ", times=2)
    job.stop()
    assert not any("FAILED" in line for line in finish(node))
    (site.folder / "stop").unlink()
    node = job.start()
    for attempt in range(3):
        node.says(f"attempt {attempt} ", times=2)
        (site.folder / "fail-0").touch()
    assert node.ends() == 1
    assert any("--max-restarts 2 is used up" in line for line in node.lines)


def test_the_root_cause_is_passed_on_to_an_error_file_of_the_launchers_own(site: Site) -> None:
    script = python(
        site,
        "fails",
        "import json, os\n"
        "extra = {'py_callstack': 'Traceback: somewhere', 'timestamp': '1700000000'}\n"
        "told = {'message': {'message': 'Oops: no', 'extraInfo': extra}}\n"
        "open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write(json.dumps(told))\n"
        "raise SystemExit(3)\n",
    )
    own = site.folder / "own.json"
    node = torchrun(site, script, TORCHELASTIC_ERROR_FILE=str(own))
    assert node.ends() == 1
    assert "  traceback : Traceback: somewhere" in node.lines
    assert any(line.endswith("/attempt_0/0/error.json") for line in node.lines)
    passed_on = json.loads(own.read_text())["message"]
    assert (passed_on["message"], passed_on["errorCode"]) == ("Oops: no", 3)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_everything(site: Site, number: signal.Signals, code: int) -> None:
    node = Job(site, "--standalone", "--nproc-per-node=2").start()
    node.says("up", times=2)
    node.send(number)
    assert node.ends(5.0) == code
    assert not site.processes()


def test_a_worker_that_does_not_listen_is_ended_all_the_same(site: Site) -> None:
    stubborn = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint('up', flush=True)\n"
    node = torchrun(site, python(site, "stubborn", stubborn + "time.sleep(60)\n"))
    node.says("up")
    node.send(signal.SIGTERM)
    assert node.ends(5.0) == 143


def test_nothing_outlives_a_launcher_that_is_killed(site: Site) -> None:
    node = Job(site, "--standalone", "--nproc-per-node=2").start()
    node.says("up", times=2)
    node.send(signal.SIGKILL)
    eventually(lambda: not site.processes(), within=5.0, but=site.processes)


def test_the_command_that_jobs_find_on_their_path(site: Site) -> None:
    env = {**site.env, **shims.environment(site.env)}
    given: dict[tuple[str, ...], list[str]] = {
        ("torchrun",): [],
        (sys.executable, "-m", "torch.distributed.run"): [],
        (sys.executable, "-m", "torch.distributed.launch"): ["--local-rank=0"],
        (sys.executable, "-m", "torchelastic.distributed.launch"): [],
    }
    for command, arguments in given.items():
        node = Launched([*command, "--standalone", PRINT_ENV], env, site.folder)
        worker = told(node)[0]
        assert worker["argv"] == arguments
        assert worker["WORLD_SIZE"] == "1"
        assert worker["TORCHELASTIC_USE_AGENT_STORE"] == "False", "torch's own sets True"
    assert Path(shims.BIN, "torchrun").exists()


def test_the_log_level_info_shows_the_rendezvous(site: Site) -> None:
    node = torchrun(site, "--nproc-per-node=2", PRINT_ENV, LOGLEVEL="INFO")
    told = [line.split(" ", 3)[3] for line in finish(node) if line.startswith("INFO ")]
    assert told[0] == "Attempting to join next rendezvous"
    (run_id,) = re.findall("run_([^/]+)/rdzv", told[-1])
    assert told[1:] == round_lines(1, 0, 1, run_id)


def test_the_log_level_info_says_who_is_there_to_the_later_nodes_too() -> None:
    created, *_ = round_lines(2, 0, 2, "job")
    observed, joined, *_, final = round_lines(2, 1, 2, "job")
    assert created.startswith("New rendezvous state created: {'status': 'joinable', 'version': '2'")
    assert observed.startswith("Observed existing rendezvous state: ")
    assert observed.endswith("'participants': [0]}")
    assert "as rank 1. Full state: {'status': 'frozen'" in joined
    assert "'/torchelastic/p2p/run_job/rdzv/v_2/rank_1'], 'num_workers_waiting': 0}" in final


def test_a_job_of_one_node_needs_no_folder_of_the_users(site: Site) -> None:
    (site.folder / "file").touch()
    home = str(site.folder / "file" / "home")  # cannot be made
    assert told(torchrun(site, PRINT_ENV, MIDFLIGHT_HOME=home))[0]["RANK"] == "0"
    flags = ("--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0")
    node = torchrun(site, *flags, PRINT_ENV, MIDFLIGHT_HOME=home)
    assert node.ends() == 2
    assert len(node.lines) == 1 and "MIDFLIGHT_TOKEN_FILE" in node.lines[0], node.lines
