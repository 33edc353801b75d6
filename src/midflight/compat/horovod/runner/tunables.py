"""Flags that tune the library, as the HOROVOD_* variables that its users know.

What the library makes of a variable is its own business; here they are checked, named and written.
A variable that was set in front of horovodrun stays, unless its flag is given.
"""

import argparse
from collections.abc import Callable, Mapping

from midflight.compat.horovod.runner import messages
from midflight.compat.horovod.runner.flags import LOG_LEVELS
from midflight.errors import JobFailed, UsageError

PASSED_ON = ("HOROVOD_", "NCCL_")  # variables that reach the processes on every host
_MINE = ("HOROVOD_START_TIMEOUT", "HOROVOD_ELASTIC_TIMEOUT")  # what the launcher itself reads
_NOT_NEGATIVE = (
    *("fusion_threshold_mb", "cycle_time_ms", "cache_capacity", "autotune_warmup_samples"),
    *("autotune_steps_per_sample", "autotune_bayes_opt_max_samples"),
    *("stall_check_warning_time_seconds", "stall_check_shutdown_time_seconds"),
    *("num_nccl_streams", "thread_affinity", "gloo_timeout_seconds"),
)
_SHARE = "autotune_gaussian_process_noise"
_VARIABLES = {  # by destination
    "cycle_time_ms": "CYCLE_TIME",
    "cache_capacity": "CACHE_CAPACITY",
    "hierarchical_allreduce": "HIERARCHICAL_ALLREDUCE",
    "hierarchical_allgather": "HIERARCHICAL_ALLGATHER",
    "torus_allreduce": "TORUS_ALLREDUCE",
    "no_stall_check": "STALL_CHECK_DISABLE",
    "stall_check_warning_time_seconds": "STALL_CHECK_TIME_SECONDS",
    "stall_check_shutdown_time_seconds": "STALL_SHUTDOWN_TIME_SECONDS",
    "num_nccl_streams": "NUM_NCCL_STREAMS",
    "thread_affinity": "THREAD_AFFINITY",
    "gloo_timeout_seconds": "GLOO_TIMEOUT_SECONDS",
    "log_level": "LOG_LEVEL",
}
_OF_AUTOTUNE = {
    "autotune": "AUTOTUNE",
    "autotune_log_file": "AUTOTUNE_LOG",
    "autotune_warmup_samples": "AUTOTUNE_WARMUP_SAMPLES",
    "autotune_steps_per_sample": "AUTOTUNE_STEPS_PER_SAMPLE",
    "autotune_bayes_opt_max_samples": "AUTOTUNE_BAYES_OPT_MAX_SAMPLES",
    "autotune_gaussian_process_noise": "AUTOTUNE_GAUSSIAN_PROCESS_NOISE",
}
_OF_TIMELINE = {"timeline_filename": "TIMELINE", "timeline_mark_cycles": "TIMELINE_MARK_CYCLES"}


def check(given: argparse.Namespace) -> None:
    """A config file may hold anything, a command line only what its flags take."""
    for name in (*_NOT_NEGATIVE, _SHARE):
        value = getattr(given, name)
        if value is None:
            continue
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise UsageError(f"{name}: wanted a number, got {value!r:.80}")
        if name == _SHARE and not 0 <= value <= 1:
            raise JobFailed(messages.NOT_A_SHARE.format(name=name, value=value))
        if value < 0:
            raise JobFailed(messages.NOT_NEGATIVE.format(name=name, value=value))
    if given.log_level is not None and given.log_level not in LOG_LEVELS:
        levels = ", ".join(LOG_LEVELS)
        raise UsageError(f"log_level: wanted one of {levels}, got {given.log_level!r:.80}")


def variables(given: argparse.Namespace, environ: Mapping[str, str]) -> dict[str, str]:
    """For every process of the job, on whichever host it is."""
    own = {
        name: value
        for name, value in environ.items()
        if name.startswith(PASSED_ON) and name not in _MINE
    }
    return own | _of_flags(given)


def _of_flags(given: argparse.Namespace) -> dict[str, str]:
    found = _named(given, _VARIABLES)
    found |= _named(given, _OF_AUTOTUNE) if given.autotune else {}
    found |= _named(given, _OF_TIMELINE) if given.timeline_filename else {}
    _put(found, "HOROVOD_FUSION_THRESHOLD", given.fusion_threshold_mb, lambda mb: mb * 1024 * 1024)
    _put(found, "HOROVOD_LOG_HIDE_TIME", given.log_with_timestamp, lambda shown: not shown)
    _put(found, "NCCL_IB_DISABLE", given.tcp_flag or None)
    if given.nics:
        found["HOROVOD_GLOO_IFACE"] = given.nics[0]
        found["NCCL_SOCKET_IFNAME"] = ",".join(given.nics)
    return found


def _named(given: argparse.Namespace, names: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, variable in names.items():
        _put(found, f"HOROVOD_{variable}", getattr(given, name))
    return found


def _put(
    found: dict[str, str],
    variable: str,
    value: int | float | bool | str | None,
    change: Callable[..., object] = lambda value: value,
) -> None:
    if value is not None:
        changed = change(value)
        found[variable] = str(int(changed)) if isinstance(changed, bool) else str(changed)
