"""Tuning flags, and those of a config file, as variables of the processes."""

from pathlib import Path

import pytest

from midflight.compat.horovod.runner import config_file, flags, tunables
from midflight.errors import JobFailed, UsageError

CONFIG = """
controller: gloo
params:
  fusion_threshold_mb: 32
  cycle_time_ms: 3.5
  hierarchical_allreduce: true
autotune:
  enabled: true
  log_file: tune.csv
timeline:
  filename: /tmp/timeline.json
  mark_cycles: true
stall_check:
  enabled: false
  warning_time_seconds: 120
library_options:
  num_nccl_streams: 2
logging:
  level: INFO
  hide_timestamp: true
"""


def variables(*words: str, environ: dict[str, str] | None = None) -> dict[str, str]:
    return tunables.variables(flags.parse(["-np", "1", *words, "true"]), environ or {})


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], {}),
        (["--fusion-threshold-mb", "2"], {"HOROVOD_FUSION_THRESHOLD": str(2 * 1024 * 1024)}),
        (["--cycle-time-ms", "2.5"], {"HOROVOD_CYCLE_TIME": "2.5"}),
        (["--cache-capacity", "0"], {"HOROVOD_CACHE_CAPACITY": "0"}),
        (["--hierarchical-allreduce"], {"HOROVOD_HIERARCHICAL_ALLREDUCE": "1"}),
        (["--no-hierarchical-allgather"], {"HOROVOD_HIERARCHICAL_ALLGATHER": "0"}),
        (["--torus-allreduce"], {"HOROVOD_TORUS_ALLREDUCE": "1"}),
        (["--autotune-warmup-samples", "3"], {}),
        (
            ["--autotune", "--autotune-warmup-samples", "3"],
            {"HOROVOD_AUTOTUNE": "1", "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "3"},
        ),
        (["--timeline-mark-cycles"], {}),
        (
            ["--timeline-filename", "t.json", "--timeline-mark-cycles"],
            {"HOROVOD_TIMELINE": "t.json", "HOROVOD_TIMELINE_MARK_CYCLES": "1"},
        ),
        (["--no-stall-check"], {"HOROVOD_STALL_CHECK_DISABLE": "1"}),
        (
            ["--stall-check-warning-time-seconds", "9", "--stall-check-shutdown-time-seconds", "8"],
            {"HOROVOD_STALL_CHECK_TIME_SECONDS": "9", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "8"},
        ),
        (["--num-nccl-streams", "2"], {"HOROVOD_NUM_NCCL_STREAMS": "2"}),
        (["--thread-affinity", "1"], {"HOROVOD_THREAD_AFFINITY": "1"}),
        (["--gloo-timeout-seconds", "60"], {"HOROVOD_GLOO_TIMEOUT_SECONDS": "60"}),
        (["--log-level", "DEBUG"], {"HOROVOD_LOG_LEVEL": "DEBUG"}),
        (["--log-without-timestamp"], {"HOROVOD_LOG_HIDE_TIME": "1"}),
        (["--log-with-timestamp"], {"HOROVOD_LOG_HIDE_TIME": "0"}),
        (["--tcp"], {"NCCL_IB_DISABLE": "1"}),
        (
            ["--network-interfaces", "eth0,eth1"],
            {"HOROVOD_GLOO_IFACE": "eth0", "NCCL_SOCKET_IFNAME": "eth0,eth1"},
        ),
    ],
)
def test_a_flag_becomes_a_variable(words: list[str], expected: dict[str, str]) -> None:
    assert variables(*words) == expected


def test_variables_that_were_set_before_reach_every_host_unless_a_flag_says_otherwise() -> None:
    before = {
        "HOROVOD_CYCLE_TIME": "9",
        "NCCL_DEBUG": "INFO",
        "HOROVOD_START_TIMEOUT": "1",
        "A": "b",
    }
    assert variables(environ=before) == {"HOROVOD_CYCLE_TIME": "9", "NCCL_DEBUG": "INFO"}
    assert variables("--cycle-time-ms", "1", environ=before)["HOROVOD_CYCLE_TIME"] == "1.0"


def filled(path: Path, text: str, *words: str) -> dict[str, str]:
    path.write_text(text)
    given = flags.parse(["-np", "1", *words, "true"])
    config_file.fill_in(given, str(path))
    tunables.check(given)
    return tunables.variables(given, {})


def test_a_config_file_fills_in_what_the_command_line_left_open(tmp_path: Path) -> None:
    found = filled(tmp_path / "c.yaml", CONFIG, "--cycle-time-ms", "1")
    assert found == {
        "HOROVOD_FUSION_THRESHOLD": str(32 * 1024 * 1024),
        "HOROVOD_CYCLE_TIME": "1.0",
        "HOROVOD_HIERARCHICAL_ALLREDUCE": "1",
        "HOROVOD_AUTOTUNE": "1",
        "HOROVOD_AUTOTUNE_LOG": "tune.csv",
        "HOROVOD_TIMELINE": "/tmp/timeline.json",
        "HOROVOD_TIMELINE_MARK_CYCLES": "1",
        "HOROVOD_STALL_CHECK_DISABLE": "1",
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "120",
        "HOROVOD_NUM_NCCL_STREAMS": "2",
        "HOROVOD_LOG_LEVEL": "INFO",
        "HOROVOD_LOG_HIDE_TIME": "1",
    }


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("params: {fusion_treshold_mb: 3}", "unknown name 'fusion_treshold_mb'"),
        ("parameters: {}", "unknown name 'parameters'"),
        ("params: 3", "wanted a mapping, got 3"),
        ("a: b: c", "is not YAML"),
        ("params: {cycle_time_ms: fast}", "cycle_time_ms: wanted a number, got 'fast'"),
        ("logging: {level: LOUD}", "log_level: wanted one of TRACE"),
    ],
)
def test_a_wrong_config_file_is_refused_by_name(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        filled(tmp_path / "c.yaml", text)


def test_values_of_a_config_file_are_checked_like_flags(tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match="cache_capacity=-1 must be >= 0"):
        filled(tmp_path / "c.yaml", "params: {cache_capacity: -1}")
    with pytest.raises(JobFailed, match="No such controller supported: carrier pigeon"):
        filled(tmp_path / "c.yaml", "controller: carrier pigeon")


def test_a_config_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    given = flags.parse(["-np", "1", "true"])
    with pytest.raises(UsageError, match=r"cannot read .*none.yaml: No such file"):
        config_file.fill_in(given, str(tmp_path / "none.yaml"))
