"""`--config-file`: tuning flags from a YAML file with the sections that Horovod's users know.

A flag that was given on the command line wins. What the file has and this does not know is named,
so that a slip of the finger is found. YAML is loaded only when there is such a file.
"""

import argparse
from pathlib import Path
from typing import Any

from midflight.errors import JobFailed, UsageError

# section: key: destination
SECTIONS = {
    "params": {
        name: name
        for name in (
            *("fusion_threshold_mb", "cycle_time_ms", "cache_capacity"),
            *("hierarchical_allreduce", "hierarchical_allgather", "torus_allreduce"),
        )
    },
    "autotune": {
        "enabled": "autotune",
        "log_file": "autotune_log_file",
        "warmup_samples": "autotune_warmup_samples",
        "steps_per_sample": "autotune_steps_per_sample",
        "bayes_opt_max_samples": "autotune_bayes_opt_max_samples",
        "gaussian_process_noise": "autotune_gaussian_process_noise",
    },
    "timeline": {"filename": "timeline_filename", "mark_cycles": "timeline_mark_cycles"},
    "stall_check": {
        "enabled": "stall_check",
        "warning_time_seconds": "stall_check_warning_time_seconds",
        "shutdown_time_seconds": "stall_check_shutdown_time_seconds",
    },
    "library_options": {
        name: name
        for name in (
            *("mpi_threads_disable", "mpi_args", "binding_args", "num_nccl_streams"),
            *("thread_affinity", "gloo_timeout_seconds"),
        )
    },
    "logging": {
        "level": "log_level",
        "with_timestamp": "log_with_timestamp",
        "hide_timestamp": "log_hide_timestamp",
    },
}
_OPPOSITES = {"stall_check": "no_stall_check", "log_hide_timestamp": "log_with_timestamp"}
_CONTROLLERS = ("gloo", "mpi")


def fill_in(given: argparse.Namespace, path: str) -> None:
    """Set what the command line has left open."""
    config = _read(path)
    controller = str(config.pop("controller", None) or "gloo").lower()
    if controller not in _CONTROLLERS:
        raise JobFailed(f"No such controller supported: {controller}")
    if controller == "mpi" and not given.use_gloo:
        given.use_mpi = True
    for section, values in config.items():
        if section not in SECTIONS:
            raise UsageError(f"--config-file {path}: {_unknown(section, SECTIONS)}")
        for key, value in _mapping(values, path, section).items():
            if key not in SECTIONS[section]:
                unknown = _unknown(key, SECTIONS[section])
                raise UsageError(f"--config-file {path}: {section}: {unknown}")
            _set(given, SECTIONS[section][key], value)


def _set(given: argparse.Namespace, name: str, value: object) -> None:
    if name in _OPPOSITES and value is not None:
        name, value = _OPPOSITES[name], not value
    if getattr(given, name) is None and value is not None:
        setattr(given, name, value)


def _read(path: str) -> dict[str, Any]:
    try:
        import yaml
    except ImportError:
        raise UsageError("--config-file needs PyYAML; install it with pip") from None
    try:
        read = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--config-file: cannot read {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        where = " ".join(str(error).split())
        raise UsageError(f"--config-file: {path} is not YAML: {where:.200}") from None
    return _mapping(read, path, "the file")


def _mapping(value: object, path: str, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UsageError(f"--config-file {path}: {where}: wanted a mapping, got {value!r:.80}")
    return {str(key): item for key, item in value.items()}


def _unknown(name: str, known: dict[str, Any]) -> str:
    return f"unknown name {name!r}; known are {', '.join(sorted(known))}"
