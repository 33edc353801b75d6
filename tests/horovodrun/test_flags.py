"""What horovodrun's command line is read as."""

import subprocess
import sys

import pytest

from midflight.compat.horovod.runner import flags
from midflight.errors import UsageError


def test_everything_behind_the_command_belongs_to_the_command() -> None:
    given = flags.parse(["-np", "2", "--verbose", "python", "train.py", "-v", "--min-np", "3"])
    assert given.command == ["python", "train.py", "-v", "--min-np", "3"]
    assert (given.num_proc, given.verbose, given.min_num_proc) == (2, True, None)
    assert flags.parse(["-np", "2", "--", "python"]).command == ["python"]


def test_names_may_be_shortened_as_long_as_they_are_unambiguous() -> None:
    assert flags.parse(["-np", "1", "--slots", "4", "true"]).slots == 4
    with pytest.raises(UsageError, match="ambiguous option: --log-with could match"):
        flags.parse(["-np", "1", "--log-with", "true"])


@pytest.mark.parametrize(
    ("spelling", "name", "value"),
    [
        (["--min-num-proc", "2"], "min_num_proc", 2),
        (["--max-num-proc", "2"], "max_num_proc", 2),
        (["-hostfile", "hosts"], "hostfile", "hosts"),
        (["-H", "a:1"], "hosts", "a:1"),
        (["-prefix-timestamp"], "timestamps", True),
        (["--log-hide-timestamp"], "log_with_timestamp", False),
        (["--log-without-timestamp"], "log_with_timestamp", False),
        (["--no-log-hide-timestamp"], "log_with_timestamp", True),
        (["--stall-check"], "no_stall_check", False),
        (["--no-hierarchical-allreduce"], "hierarchical_allreduce", False),
        (["--network-interface", "a,b", "--network-interfaces", "b,c"], "nics", ("a", "b", "c")),
        (["--blacklist-cooldown-range", "5", "10"], "cooldown_range", [5, 10]),
        (["-p", "22"], "ssh_port", 22),
        (["--mpi-args=--map-by x"], "mpi_args", "--map-by x"),
    ],
)
def test_every_spelling_is_known(spelling: list[str], name: str, value: object) -> None:
    assert getattr(flags.parse(["-np", "1", *spelling, "true"]), name) == value


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["true"], "the following arguments are required: -np/--num-proc"),
        (["-np", "2", "--bogus", "true"], "unrecognized arguments: --bogus"),
        (
            ["-np", "many", "true"],
            "argument -np/--num-proc: wanted a whole number from 1 to 10000, got 'many'",
        ),
        (["-np", "1", "-H", "a:1", "--hostfile", "f", "true"], "not allowed with argument"),
        (["-np", "1", "--gloo", "--mpi", "true"], "not allowed with argument"),
        (["-np", "1", "--log-level", "LOUD", "true"], "invalid choice: 'LOUD'"),
    ],
)
def test_a_wrong_command_line_is_refused_by_name(words: list[str], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        flags.parse(words)


def test_a_build_can_be_checked_without_a_number_of_processes() -> None:
    assert flags.parse(["-cb"]).check_build


def test_the_launcher_loads_neither_torch_nor_yaml() -> None:
    code = (
        "import sys, midflight.compat.horovod.runner.launch as launch\n"
        "try: launch.main(['--help'])\n"
        "except SystemExit: print(*sorted({'torch', 'yaml'} & set(sys.modules)), 'end')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1].strip() == "end", done.stderr
    assert "usage: horovodrun -np N" in done.stdout
