"""Which commands bring a launcher of their own, and which are run in the workers."""

import time

import pytest

from midflight.backends.words import (
    counting_launcher,
    in_place_of_the_shell,
    launchers,
    runs_in_workers,
    uses_midflight,
)

GUIDE_1 = (
    "horovodrun --verbose -np $((${workers}*${gpus})) --min-np $((${minWorkers}*${gpus})) "
    "--host-discovery-script /usr/local/bin/discover_hosts.sh python /examples/train.py"
)


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("python train.py", ()),
        (GUIDE_1, ("horovodrun",)),
        ("midflight run -np 2 -- python train.py", ("midflight",)),
        ("/opt/venv/bin/midflight run python train.py", ("midflight",)),
        ("cd code && torchrun --nproc-per-node 2 train.py", ("torchrun",)),
        ("cd code;torchrun train.py", ("torchrun",)),
        ("make data || exit 1; mpirun -np 2 ./train | tee log", ("mpirun",)),
        ("cat hosts | mpiexec -f - ./train", ("mpiexec",)),
        ("OMP_NUM_THREADS=2 A='x y' exec kungfu-run -np 4 python train.py", ("kungfu-run",)),
        ("env -u A B=1 deepspeed train.py", ("deepspeed",)),
        ("exec env A=1 nohup accelerate launch train.py", ("accelerate",)),
        ("accelerate config default && accelerate-launch train.py", ("accelerate-launch",)),
        ("python -m accelerate.commands.launch t.py", ("accelerate.commands.launch",)),
        ("accelerate config default; python train.py", ()),
        ("timeout -k 5 3600 torchrun train.py", ("torchrun",)),
        ("python -m torch.distributed.run train.py", ("torch.distributed.run",)),
        ("python3.11 -u -W ignore -m torch.distributed.launch t.py", ("torch.distributed.launch",)),
        ("python -mmidflight.run -np 2 -- python train.py", ("midflight.run",)),
        ("python -P -m midflight.torchrun train.py", ("midflight.torchrun",)),
        ("bash -lc 'cd /code; arena run python train.py'", ("arena",)),
        ("if test -e a; then torchrun a; else mpirun b; fi", ("torchrun", "mpirun")),
        ("(cd code && torchrun train.py)", ("torchrun",)),
        ("nvidia-smi > gpus 2>&1 && torchrun train.py", ("torchrun",)),
        ("set -e\npip install x\ntorchrun train.py\n", ("torchrun",)),
        ("# first\ntorchrun \\\n  train.py", ("torchrun",)),
    ],
)
def test_a_launcher_is_found_where_a_command_begins(command: str, found: tuple[str, ...]) -> None:
    assert launchers(command) == found
    assert runs_in_workers(command) is (not found)


@pytest.mark.parametrize(
    "command",
    [
        "python torchrun.py",
        "python train.py --launcher torchrun",
        "echo 'first; midflight run' && python train.py",
        "python -m my.training -m torch.distributed.run",
        "python train.py --backend mpirun > torchrun",
        "cat train.py >torchrun; python train.py",
        "python train.py # torchrun train.py",
        "sh train.sh -c torchrun",
        'python train.py --user "$(whoami)" --n $((2*${gpus}))',
        "python train.py 'a quote that does not end",
        "",
    ],
)
def test_a_launchers_name_elsewhere_in_the_command_means_nothing(command: str) -> None:
    assert launchers(command) == ()
    assert runs_in_workers(command)


@pytest.mark.parametrize(
    "piece",
    ["A=1 ", "exec ", "x", "a;", "(", "$((", "env -i ", "-u ", "'", "sh -c 'sh -c ", '"\\"" '],
)
def test_a_long_command_is_read_in_a_time_that_grows_with_its_length(piece: str) -> None:
    """The operator reads what any tenant writes."""
    text = f"python {piece * (128 * 1024 // len(piece))}"
    began = time.process_time()
    launchers(text)
    in_place_of_the_shell(text)
    assert time.process_time() - began < 5.0


def test_what_was_said_about_the_place_wins_over_the_words() -> None:
    assert runs_in_workers("torchrun train.py", "workers")
    assert not runs_in_workers("python driver.py", "launcher")


@pytest.mark.parametrize(
    ("command", "run_in", "expected"),
    [
        ("accelerate launch train.py", "auto", "accelerate"),
        ("torchrun prepare.py && deepspeed train.py", "auto", "deepspeed"),
        ("sh -c 'mpirun -np 2 python train.py'", "auto", "mpirun"),
        ("torchrun train.py", "auto", ""),
        ("python train.py", "auto", ""),
        ("midflight run -np 2 python train.py || mpirun a", "auto", ""),
        ("accelerate launch train.py", "launcher", ""),
    ],
)
def test_all_launchers_but_torchrun_and_ours_count_their_nodes_when_they_start(
    command: str, run_in: str, expected: str
) -> None:
    assert counting_launcher(command, run_in) == expected


@pytest.mark.parametrize(
    ("command", "run_in", "expected"),
    [
        ("python train.py", "auto", True),
        ("horovodrun -np 2 python train.py", "auto", True),
        ("python -m midflight.run -np 2 python train.py", "auto", True),
        ("mpirun ./train", "auto", False),
        ("python driver.py", "launcher", False),
        ("torchrun train.py", "workers", True),
    ],
)
def test_a_run_is_expected_of_commands_that_use_midflight(
    command: str, run_in: str, expected: bool
) -> None:
    assert uses_midflight(command, run_in) is expected


@pytest.mark.parametrize(
    "command",
    [
        "python train.py",
        "/opt/bin/python3 -m train --n ${gpus}",
        "horovodrun -np 2 python t.py",
        GUIDE_1,
        "horovodrun \\\n  -np $((${workers}*${gpus})) \\\n  python t.py\n  ",
    ],
)
def test_a_shell_that_has_nothing_else_to_do_makes_way(command: str) -> None:
    assert in_place_of_the_shell(command) == f"exec {command}"


@pytest.mark.parametrize(
    "command",
    [
        "cd x && python t.py",
        "python a.py; python b.py",
        "python a.py\npython b.py",
        "python $(find . -name a.py)",
        "A=1 python t.py",
        "export A=1",
        "true | cat",
    ],
)
def test_a_shell_that_is_needed_stays(command: str) -> None:
    assert in_place_of_the_shell(command) == command
