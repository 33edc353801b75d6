"""What is wrong with a spec, in one line, before anything is made of it.

The messages are those that Arena's users know, with what came added where it was missing; what
Arena let pass and stumbled over later (bounds, policies, names of variables) is refused here.
"""

import math
import re

from midflight.controller.formats import (
    check_config_files,
    check_data,
    check_data_dirs,
    check_devices,
    is_quantity,
)
from midflight.controller.spec import DEFAULT_NAMESPACE, Kind, Spec
from midflight.controller.state import Cluster
from midflight.errors import Exists, UsageError

LONGEST_NAME = 49
LONGEST_NAMESPACE = 63
CLEAN_POLICIES = ("None", "Running", "All")
JOB_POLICIES = ("Never", "OnFailure")
WORKER_POLICIES = ("Never", "OnFailure", "Always", "ExitCode")
SYNC_MODES = ("git", "rsync")
RUN_IN = ("auto", "launcher", "workers")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_PROCESSES = re.compile(r"auto|cpu|gpu|[1-9]\d*")


def check(spec: Spec) -> None:
    """Raises UsageError for the first thing that is wrong."""
    _check_names(spec)
    _check_sizes(spec)
    _check_bounds(spec)
    _check_policies(spec)
    _check_times(spec)
    _check_environment(spec)
    _check_sync(spec)
    container = spec.container
    check_devices(container.devices)
    check_data(container.data)
    check_data_dirs(container.data_dirs)
    check_config_files(container.config_files)


def refusal(cluster: Cluster, spec: Spec) -> None:
    """Raises Exists if the name is taken."""
    if (job := cluster.jobs.get(spec.key)) is None:
        return
    where = "" if spec.namespace == DEFAULT_NAMESPACE else f" -n {spec.namespace}"
    if job.deleting:
        raise Exists(f"the job {spec.name} is still being deleted, please try again in a moment")
    raise Exists(
        f"the job {spec.name} is already exist, please delete it first. "
        f"use 'arena delete {spec.name}{where}'"
    )


def _check_names(spec: Spec) -> None:
    name = spec.name
    if not name:
        raise UsageError("--name must be set")
    if len(name) > LONGEST_NAME:
        raise UsageError(
            f"the len {len(name)} of name {name} is too long, it should be at most {LONGEST_NAME}"
        )
    if not _NAME.fullmatch(name):
        raise UsageError(
            "the job name must consist of lower case alphanumeric characters or '-', "
            f"and must start and end with an alphanumeric character, got {name!r}"
        )
    if len(spec.namespace) > LONGEST_NAMESPACE or not _NAME.fullmatch(spec.namespace):
        raise UsageError(
            f"the namespace must consist of at most {LONGEST_NAMESPACE} lower case alphanumeric "
            f"characters or '-', and must start and end with one, got {spec.namespace!r}"
        )
    if not spec.command.strip():
        raise UsageError("not found command args: say what the job runs after its flags")


def _check_sizes(spec: Spec) -> None:
    if spec.gpus < 0:
        raise UsageError(f"--gpus is invalid: wanted 0 or more, got {spec.gpus}")
    if spec.workers < 1:
        raise UsageError(f"--workers is invalid: wanted at least 1, got {spec.workers}")
    flags = (
        ("--cpu", spec.cpu),
        ("--memory", spec.memory),
        ("--share-memory", spec.container.share_memory),
    )
    for flag, text in flags:
        if text and not is_quantity(text):
            raise UsageError(
                f"{flag} is invalid: wanted a number such as 2, 500m or 4Gi, got {text!r}"
            )
    if spec.nproc_per_node and not _PROCESSES.fullmatch(spec.nproc_per_node):
        raise UsageError(
            "--nproc-per-node is invalid: wanted auto, cpu, gpu or a number, "
            f"got {spec.nproc_per_node!r}"
        )


def _check_bounds(spec: Spec) -> None:
    if spec.min_workers is None:
        if spec.kind is Kind.ETJOB:
            raise UsageError("--min-workers is missing: an etjob has at least 1")
        if spec.max_workers is not None:
            raise UsageError("--max-workers needs --min-workers: together they make a job elastic")
        return
    if spec.min_workers < 1:
        raise UsageError(f"--min-workers is invalid: wanted at least 1, got {spec.min_workers}")
    if spec.most < spec.min_workers:
        raise UsageError(f"--max-workers {spec.most} is less than --min-workers {spec.min_workers}")
    if not spec.min_workers <= spec.workers <= spec.most:
        raise UsageError(
            f"--workers {spec.workers} is not between --min-workers {spec.min_workers} "
            f"and --max-workers {spec.most}"
        )


def _check_policies(spec: Spec) -> None:
    if spec.clean_policy not in CLEAN_POLICIES:
        raise UsageError(
            f"unsupported cleanTaskPolicy {spec.clean_policy}: use {_one_of(CLEAN_POLICIES)}"
        )
    _check_choice("--job-restart-policy", spec.restart_policy, JOB_POLICIES)
    _check_choice("--worker-restart-policy", spec.worker_restart_policy, WORKER_POLICIES)
    _check_choice("--run-in", spec.run_in, RUN_IN)
    for flag, number in (("--retry", spec.retry), ("--job-backoff-limit", spec.backoff_limit)):
        if number < 0:
            raise UsageError(f"{flag} is invalid: wanted 0 or more, got {number}")


def _check_choice(flag: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UsageError(f"{flag} is invalid: wanted {_one_of(known)}, got {value!r}")


def _one_of(known: tuple[str, ...]) -> str:
    return f"{', '.join(known[:-1])} or {known[-1]}"


def _check_times(spec: Spec) -> None:
    times = (
        ("--running-timeout", spec.running_timeout),
        ("--ttl-after-finished", spec.ttl_after_finished),
        ("--max-wait-time", spec.max_wait_time),
    )
    for flag, seconds in times:
        if seconds is not None and not (math.isfinite(seconds) and seconds >= 0):
            raise UsageError(f"{flag} is invalid: wanted 0 or more seconds, got {seconds:g}")


def _check_environment(spec: Spec) -> None:
    for name, value in spec.env.items():
        if not _VARIABLE.fullmatch(name):
            raise UsageError(f"--env is invalid: {name!r} is not a name for a variable")
        if "\0" in value:
            raise UsageError(f"--env is invalid: the value of {name} holds a zero byte")
    for flag, pairs in (("--selector", spec.selectors), ("--label", spec.labels)):
        if "" in pairs:
            raise UsageError(f"{flag} is invalid: wanted NAME=VALUE, got '={pairs['']}'")
    if "\0" in spec.command:
        raise UsageError("the command is invalid: it holds a zero byte")
    if spec.working_dir and not spec.working_dir.startswith("/"):
        raise UsageError(f"--working-dir must be absolute, got {spec.working_dir!r}")


def _check_sync(spec: Spec) -> None:
    if spec.sync is None:
        return
    if spec.sync.mode not in SYNC_MODES:
        raise UsageError(f"Unknown sync mode: {spec.sync.mode}; use {_one_of(SYNC_MODES)}")
    if not spec.sync.source:
        raise UsageError("--syncSource should be set when syncMode is set")
    for word, text in (("source", spec.sync.source), ("branch", spec.sync.branch)):
        if text.startswith("-"):  # git and rsync would take it for an option
            raise UsageError(f"the {word} of --sync-mode {spec.sync.mode} starts with '-': {text}")
