"""What kind of run horovodrun's flags ask for, and which of them cannot be."""

from pathlib import Path

import pytest

from midflight.compat.horovod.runner import flags, messages
from midflight.compat.horovod.runner.options import options
from midflight.errors import JobFailed, UsageError
from midflight.run.options import UNBOUNDED, Options


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"MIDFLIGHT_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}


def read(env: dict[str, str], *words: str) -> Options:
    return options(flags.parse([*words, "true"]), env)


def sizes(found: Options) -> tuple[int, int, int]:
    return found.spec.np, found.spec.min_np, found.spec.max_np


@pytest.mark.parametrize(
    ("words", "static", "expected"),
    [
        (["-np", "3"], True, (3, 3, 3)),
        (["-np", "3", "--max-np", "5"], True, (3, 3, 3)),
        (["-np", "3", "--min-np", "2"], False, (3, 2, UNBOUNDED)),
        (["-np", "3", "--min-np", "2", "--max-np", "4"], False, (3, 2, 4)),
        (["-np", "2", "--host-discovery-script", "ls"], False, (2, 2, UNBOUNDED)),
        (["-np", "1", "--min-np", "1", "-H", "localhost:2,127.0.0.1:2"], False, (4, 1, UNBOUNDED)),
        (["-np", "1", "--min-np", "1", "--max-np", "3", "-H", "localhost:4"], False, (3, 1, 3)),
    ],
)
def test_a_job_is_elastic_if_it_has_a_minimum_or_a_discovery_script(
    env: dict[str, str], words: list[str], static: bool, expected: tuple[int, int, int]
) -> None:
    found = read(env, *words)
    assert sizes(found) == expected
    habits = found.spec.dialect
    assert (habits.fixed_size, habits.takes_all_slots) == (static, not static)


def test_one_host_is_enough_for_an_elastic_job(env: dict[str, str]) -> None:
    assert read(env, "-np", "1", "--min-np", "1", "-H", "localhost:1").hosts == {"localhost": 1}


def test_localhost_and_127_0_0_1_are_two_hosts(env: dict[str, str]) -> None:
    found = read(env, "-np", "2", "-H", "localhost:1,127.0.0.1:1")
    assert found.hosts == {"localhost": 1, "127.0.0.1": 1}


def test_inside_a_job_its_own_size_holds(env: dict[str, str], tmp_path: Path) -> None:
    inside = {**env, "MIDFLIGHT_JOB_DIR": str(tmp_path), "MIDFLIGHT_JOB": "demo"}
    script = ("--host-discovery-script", "/etc/edl/discover_hosts.sh")
    found = read(inside, "-np", "3", "--min-np", "1", "--max-np", "9", *script)
    assert found.hosted is not None and found.discovery is None
    assert sizes(found) == (3, 1, 9)
    assert not found.spec.dialect.takes_all_slots and not found.spec.dialect.fixed_size


@pytest.mark.parametrize(
    ("words", "variables", "expected"),
    [
        ([], {}, (30.0, 600.0)),
        ([], {"HOROVOD_START_TIMEOUT": "5", "HOROVOD_ELASTIC_TIMEOUT": "6"}, (5.0, 6.0)),
        (["--start-timeout", "7"], {"HOROVOD_START_TIMEOUT": "5"}, (7.0, 600.0)),
        (["--elastic-timeout", "8"], {}, (30.0, 8.0)),
    ],
)
def test_timeouts_come_from_flags_or_from_variables(
    env: dict[str, str],
    words: list[str],
    variables: dict[str, str],
    expected: tuple[float, float],
) -> None:
    spec = read({**env, **variables}, "-np", "1", *words).spec
    assert (spec.start_timeout, spec.elastic_timeout) == expected


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["-np", "1", "-H", "localhost"], messages.INVALID_HOSTS),
        (["-np", "1", "-H", "local host:2"], messages.INVALID_HOSTS),
        (["-np", "3", "-H", "a:1,b:1"], messages.TOO_MANY.format(np=3, slots=2)),
        (["-np", "1", "--cycle-time-ms", "-1"], "cycle_time_ms=-1.0 must be >= 0"),
        (
            ["-np", "1", "--autotune-gaussian-process-noise", "2"],
            "autotune_gaussian_process_noise=2.0 must be in [0, 1]",
        ),
        (
            ["-np", "1", "--blacklist-cooldown-range", "0", "9"],
            "Provided cooldown lower limit: 0 cannot be lower than default cooldown lower limit: 1",
        ),
        (
            ["-np", "1", "--blacklist-cooldown-range", "1", "3601"],
            "Provided cooldown upper limit: 3601 cannot be higher than default cooldown upper "
            "limit: 3600",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_the_words_that_users_know(
    env: dict[str, str], words: list[str], complaint: str
) -> None:
    with pytest.raises(JobFailed) as refusal:
        read(env, *words)
    assert str(refusal.value) == complaint


@pytest.mark.parametrize(
    "words",
    [["-np", "2", "--min-np", "3"], ["-np", "4", "--min-np", "1", "--max-np", "3"], ["-np", "0"]],
)
def test_sizes_must_fit_together(env: dict[str, str], words: list[str]) -> None:
    with pytest.raises(UsageError):
        read(env, *words)


def test_a_hostfile_and_a_cool_down_are_taken_over(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("localhost slots=2\n127.0.0.1 slots=1\n")
    hostfile = ("-hostfile", str(tmp_path / "hosts"))
    found = read(env, "-np", "3", *hostfile, "--blacklist-cooldown-range", "2", "60")
    assert found.hosts == {"localhost": 2, "127.0.0.1": 1}
    assert (found.spec.cooldown_min, found.spec.cooldown_max) == (2.0, 60.0)
