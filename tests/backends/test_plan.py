"""What each instance of each kind of job runs, and with which environment."""

from dataclasses import replace

import pytest

from midflight import shims
from midflight.backends.local.plan import Plan, Site, render
from midflight.controller.spec import Kind, Spec
from midflight.controller.state import Cluster, Instance, Job, Node, Role
from midflight.deadlines import GRACE

FOLDER = "/home/me/.midflight/jobs/default/demo"
SITE = Site(
    python="/opt/venv/bin/python",
    home="/home/me/.midflight",
    folder=FOLDER,
    environ={"PATH": "/usr/bin", "LANG": "C", "MIDFLIGHT_MEMBER": "of another job"},
    port=23456,
)
NODES = {
    "gpu-1": Node("gpu-1", "10.0.0.1", gpus=8),
    "node-2": Node("node-2", "127.0.1.2", gpus=4, virtual=True),
}
ETJOB = Spec(
    Kind.ETJOB, "demo", "horovodrun python t.py", workers=3, min_workers=1, max_workers=9, gpus=2
)
PYTORCHJOB = Spec(Kind.PYTORCHJOB, "demo", "python t.py", workers=3, gpus=1)
LAUNCHER = Instance("demo-launcher", Role.LAUNCHER, 0, 0, 0.0, node="gpu-1")
MASTER = Instance("demo-master-0", Role.MASTER, 0, 1, 0.0, node="gpu-1", devices=(0,))
WORKER = Instance("demo-worker-1", Role.WORKER, 1, 2, 0.0, node="gpu-1", devices=(4, 5))
ELSEWHERE = replace(WORKER, node="node-2", devices=(0, 1))


def plan(spec: Spec, instance: Instance, wanted: int | None = None) -> Plan:
    wanted = spec.workers if wanted is None else wanted
    instances = {MASTER.name: MASTER, instance.name: instance}
    job = Job(spec, "uid", 0.0, wanted, instances=instances)
    return render(job, instance, Cluster(NODES, {job.key: job}), SITE)


def test_an_etjobs_launcher_runs_the_command_in_a_shell() -> None:
    found = plan(ETJOB, LAUNCHER)
    assert found.argv == ("sh", "-c", "exec horovodrun python t.py")
    assert found.cwd == f"{FOLDER}/work"
    assert found.grace == GRACE


def test_the_shell_and_the_working_directory_are_what_was_asked_for() -> None:
    found = plan(replace(ETJOB, shell="bash", working_dir="/data/me"), LAUNCHER)
    assert found.argv[:2] == ("bash", "-c")
    assert found.cwd == "/data/me"


def test_an_etjobs_command_finds_its_sizes_in_the_environment() -> None:
    spec = replace(ETJOB, env={"workers": "99", "MY": "own"})
    env = plan(spec, LAUNCHER).env
    sizes = {name: env[name] for name in ("workers", "gpus", "minWorkers", "maxWorkers")}
    assert sizes == {"workers": "3", "gpus": "2", "minWorkers": "1", "maxWorkers": "9"}
    assert env["MY"] == "own"
    assert "NVIDIA_VISIBLE_DEVICES" not in env
    assert plan(replace(spec, gpus=0), LAUNCHER).env["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_a_command_without_a_launcher_is_run_elastically() -> None:
    found = plan(replace(ETJOB, command="python t.py"), LAUNCHER)
    sizes = ("-np", "6", "--min-np", "2", "--max-np", "18")
    run = ("/opt/venv/bin/python", "-P", "-m", "midflight.run")
    assert found.argv == (*run, *sizes, "--", "sh", "-c", "exec python t.py")


def test_a_launcher_that_starts_again_asks_for_the_size_the_job_has_now() -> None:
    found = plan(replace(ETJOB, command="python t.py", gpus=0), LAUNCHER, wanted=5)
    assert found.argv[4:10] == ("-np", "5", "--min-np", "1", "--max-np", "9")
    assert found.env["workers"] == "5"


def test_where_the_command_runs_can_be_said() -> None:
    in_launcher = replace(ETJOB, command="python driver.py", run_in="launcher")
    assert plan(in_launcher, LAUNCHER).argv == ("sh", "-c", "exec python driver.py")
    assert "midflight.run" in plan(replace(ETJOB, run_in="workers"), LAUNCHER).argv


def test_an_etjobs_worker_runs_an_agent_that_is_named_like_the_instance() -> None:
    argv = plan(ETJOB, ELSEWHERE).argv
    assert argv[:4] == ("/opt/venv/bin/python", "-P", "-m", "midflight.agent")
    options = dict(zip(argv[4::2], argv[5::2], strict=True))
    assert options == {
        "--run-dir": f"{FOLDER}/run",
        "--name": "demo-worker-1",
        "--slots": "2",
        "--address": "127.0.1.2",
        "--grace": "30",
    }


def test_every_instance_of_a_fixed_pytorchjob_runs_the_command() -> None:
    for instance in (MASTER, WORKER):
        assert plan(PYTORCHJOB, instance).argv == ("sh", "-c", "exec python t.py")


def test_a_fixed_pytorchjob_tells_each_instance_its_rank_and_its_master() -> None:
    master, worker = plan(PYTORCHJOB, MASTER).env, plan(PYTORCHJOB, ELSEWHERE).env
    assert (master["MASTER_ADDR"], worker["MASTER_ADDR"]) == ("localhost", "10.0.0.1")
    assert (master["RANK"], worker["RANK"]) == ("0", "2")
    expected = {
        "PYTHONUNBUFFERED": "1",
        "MASTER_PORT": "23456",
        "WORLD_SIZE": "3",
        "PET_MASTER_ADDR": "10.0.0.1",
        "PET_MASTER_PORT": "23456",
        "PET_NODE_RANK": "2",
        "PET_NNODES": "3",
        "PET_NPROC_PER_NODE": "1",
    }
    assert {name: worker[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("given", "size", "told"),
    [("4", "12", "4"), ("gpu", "6", "gpu"), ("auto", "6", "auto"), ("cpu", "3", "cpu")],
)
def test_the_world_counts_the_processes_of_each_node(given: str, size: str, told: str) -> None:
    env = plan(replace(PYTORCHJOB, gpus=2, nproc_per_node=given), MASTER).env
    assert env["WORLD_SIZE"] == size
    assert env["PET_NPROC_PER_NODE"] == told


def test_the_master_of_an_elastic_pytorchjob_is_launcher_and_host() -> None:
    elastic = replace(PYTORCHJOB, min_workers=2, max_workers=4)
    master, worker = plan(elastic, MASTER), plan(elastic, WORKER)
    assert master.argv[3:10] == ("midflight.run", "-np", "3", "--min-np", "2", "--max-np", "4")
    assert master.env["MIDFLIGHT_HOST"] == "demo-master-0"
    assert worker.argv[3] == "midflight.agent"
    assert "MIDFLIGHT_HOST" not in worker.env
    assert "RANK" not in master.env and "MASTER_ADDR" not in worker.env


def test_the_environment_is_laid_down_in_order() -> None:
    spec = replace(
        ETJOB,
        environment={"LANG": "de", "SHELL_ONLY": "1", "MIDFLIGHT_JOB_DIR": "of another"},
        env={"LANG": "fr", "MIDFLIGHT_HOME": "/elsewhere"},
    )
    env = plan(spec, WORKER).env
    assert (env["LANG"], env["SHELL_ONLY"]) == ("fr", "1")
    assert "MIDFLIGHT_MEMBER" not in env
    ours = {name: value for name, value in env.items() if name.startswith("MIDFLIGHT_")}
    assert ours == {
        "MIDFLIGHT_HOME": "/home/me/.midflight",
        "MIDFLIGHT_JOB": "demo",
        "MIDFLIGHT_JOB_DIR": FOLDER,
        "MIDFLIGHT_INSTANCE": "demo-worker-1",
        "MIDFLIGHT_NODE": "gpu-1",
        "MIDFLIGHT_HOSTFILE": f"{FOLDER}/edl/hostfile",
        "MIDFLIGHT_PYTHON": "/opt/venv/bin/python",
    }


def test_the_path_begins_with_the_jobs_own_commands() -> None:
    ours = f"{FOLDER}/bin:{shims.BIN}:/opt/venv/bin"
    assert plan(ETJOB, WORKER).env["PATH"] == f"{ours}:/usr/bin"
    given = plan(replace(ETJOB, environment={"PATH": "/conda/bin"}), WORKER).env["PATH"]
    assert given == f"{ours}:/conda/bin"


def test_packages_under_old_names_are_found_before_those_of_the_submitting_shell() -> None:
    assert plan(ETJOB, WORKER).env["PYTHONPATH"] == shims.PYTHON
    given = plan(replace(ETJOB, environment={"PYTHONPATH": "/mine"}), WORKER).env["PYTHONPATH"]
    assert given == f"{shims.PYTHON}:/mine"


def test_secrets_reach_no_process() -> None:
    spec = replace(
        ETJOB,
        env={"GIT_SYNC_PASSWORD": "hidden", "TOKEN": "hidden"},
        environment={"GIT_SYNC_USERNAME": "hidden"},
        secrets={"TOKEN": "hidden"},
    )
    found = plan(spec, LAUNCHER)
    assert "hidden" not in found.env.values()
    assert "hidden" not in repr(found)


def test_real_devices_are_shown_and_all_others_hidden() -> None:
    assert plan(ETJOB, WORKER).env["CUDA_VISIBLE_DEVICES"] == "4,5"
    assert plan(ETJOB, LAUNCHER).env["CUDA_VISIBLE_DEVICES"] == ""


def test_slots_that_stand_for_devices_hide_nothing() -> None:
    assert "CUDA_VISIBLE_DEVICES" not in plan(ETJOB, ELSEWHERE).env
