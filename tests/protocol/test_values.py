"""The values that are checked once: a job's spec, a worker's environment, a command line."""

import dataclasses

import pytest

from midflight.errors import ProtocolError, UsageError
from midflight.protocol.environment import TorchrunEnv, WorkerEnv
from midflight.protocol.handover import parse_command
from midflight.protocol.job import JobSpec


def spec(**changes: object) -> JobSpec:
    fields = {"name": "job", "command": ("sh",), "np": 2, "min_np": 1, "max_np": 4}
    return JobSpec(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"command": ()}, "no command given; put it after `--`"),
        ({"min_np": 0}, "--min-np must be at least 1, got 0"),
        ({"np": 5}, "wanted min-np <= np <= max-np, got --min-np 1, -np 5, --max-np 4"),
        ({"min_np": 3}, "got --min-np 3, -np 2"),
        ({"cooldown_min": 9.0, "cooldown_max": 3.0}, "--cooldown wants MIN <= MAX"),
        ({"cooldown_min": -1.0}, "--cooldown wants MIN <= MAX"),
        ({"reset_limit": -1}, "--reset-limit must be at least 0, got -1"),
        ({"elastic_timeout": 0.0}, "--elastic-timeout must be more than 0 seconds, got 0"),
        ({"grace": -2.0}, "--grace must be more than 0 seconds, got -2"),
    ],
)
def test_a_spec_that_cannot_be_is_refused_with_what_was_wanted_and_what_came(
    changes: dict[str, object], words: str
) -> None:
    with pytest.raises(UsageError) as error:
        spec(**changes)
    assert words in str(error.value)


def test_a_worker_s_environment_comes_back_as_it_went() -> None:
    env = WorkerEnv("run", "m3", "h1", 2, "10.0.0.1", "h0:5", "/t", 60.0, 30.0, "/l", warm=True)
    read = WorkerEnv.from_env(env.to_env())
    assert read is not None
    assert dataclasses.replace(read, rank=env.rank, size=env.size, joiner=env.joiner) == env


def test_a_process_that_no_agent_started_has_no_such_environment() -> None:
    assert WorkerEnv.from_env({"PATH": "/bin", "RANK": "0"}) is None


@pytest.mark.parametrize(("name", "value"), [("SLOT", "two"), ("GRACE", ""), ("RUN", None)])
def test_a_damaged_environment_is_said_to_be_damaged(name: str, value: str | None) -> None:
    env = WorkerEnv("run", "m3", "h1", 2, "x", "h0:5", "/t", 60.0, 30.0, "").to_env()
    env.pop(f"MIDFLIGHT_{name}")
    if value is not None:
        env[f"MIDFLIGHT_{name}"] = value
    with pytest.raises(ProtocolError, match="MIDFLIGHT_ variables are damaged"):
        WorkerEnv.from_env(env)


def test_scripts_without_midflight_find_what_torchrun_sets() -> None:
    env = TorchrunEnv(1, 4, 1, 2, 0, 2, "10.0.0.1", 29400, 3, 7, "run").to_env()
    assert env["RANK"] == "1" and env["WORLD_SIZE"] == "4"
    assert env["LOCAL_RANK"] == "1" and env["LOCAL_WORLD_SIZE"] == "2"
    assert env["MASTER_ADDR"] == "10.0.0.1" and env["MASTER_PORT"] == "29400"
    assert env["TORCHELASTIC_RESTART_COUNT"] == "3"


@pytest.mark.parametrize(
    ("command", "target"),
    [
        ("python train.py --lr 1", "train.py"),
        ("python -u train.py", "train.py"),
        ("python3 -m package.train -x", "package.train"),
    ],
)
def test_a_standby_can_stand_in_for_a_script_or_a_module(command: str, target: str) -> None:
    program = parse_command(tuple(command.split()))
    assert program is not None and program.target == target


@pytest.mark.parametrize("command", ["", "bash -c x", "python -c pass", "python -O t.py", "./t"])
def test_and_for_nothing_cleverer(command: str) -> None:
    assert parse_command(tuple(command.split())) is None
