"""Every flag of `submit`: its spellings, where its value goes in a spec, and how it is read.

`to` is the path of the value in the spec as JSON. What begins with `container.` has a meaning only
where instances are containers. A flag that was not given leaves no trace, so that a job file or
the spec's own default can say something.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from midflight import durations
from midflight.cli import flags

ET = ("etjob",)
PY = ("pytorchjob",)
BOTH = ET + PY


@dataclass(frozen=True)
class Flag:
    names: str  # divided by blanks
    to: str
    help: str
    read: Callable[[str], object] = str
    many: bool = False  # may be given several times
    switch: bool = False
    old: str = ""  # deprecated spelling
    kinds: tuple[str, ...] = BOTH
    metavar: str = ""

    @property
    def long(self) -> str:
        return next(name for name in self.names.split() if name.startswith("--"))

    @property
    def dest(self) -> str:
        return self.long[2:].replace("-", "_")


def _waiting(text: str) -> float | None:
    """0 is for ever."""
    return durations.parse(text) or None


SIZE = (
    Flag("--name", "name", "of the job; needed", metavar="NAME"),
    Flag("--workers", "workers", "how many (default 1)", flags.number),
    Flag("--min-workers", "min_workers", "it runs with so many", flags.number),
    Flag("--max-workers", "max_workers", "it never grows beyond", flags.number),
    Flag("--gpus", "gpus", "devices of each worker (default 0)", flags.number),
    Flag("--cpu", "cpu", "limit of each worker, such as 500m or 2"),
    Flag("--memory", "memory", "limit of each worker, such as 512Mi or 4Gi"),
    Flag("--selector", "selectors", "label that a node must have", flags.pair, many=True),
)
RUNNING = (
    Flag(
        "--working-dir",
        "working_dir",
        "where the command runs (default: this folder; with --sync-mode, your home)",
        old="--workingDir",
        metavar="FOLDER",
    ),
    Flag("-e --env", "env", "variable for every process", flags.pair, many=True),
    Flag("--shell", "shell", "that reads the command (default sh)"),
    Flag(
        "--run-in",
        "run_in",
        "launcher: the command starts the training itself; workers: it is the training; "
        "auto: by its words (default)",
        kinds=ET,
    ),
    Flag("-l --label", "labels", "of the job", flags.pair, many=True),
    Flag("--spot-instance", "spot", "workers may be taken away", switch=True, kinds=ET),
    Flag("--max-wait-time", "max_wait_time", "fails if it still waits then", _waiting, kinds=ET),
    Flag("--nproc-per-node", "nproc_per_node", "auto, cpu, gpu or a number", kinds=PY),
    Flag("--running-timeout", "running_timeout", "how long it may run", _waiting, kinds=PY),
    Flag(
        "--ttl-after-finished",
        "ttl_after_finished",
        "how long after its end it is deleted",
        _waiting,
        kinds=PY,
    ),
    Flag(
        "--clean-task-policy",
        "clean_policy",
        "at the end, stop None, Running (default) or All of its instances",
        kinds=PY,
    ),
    Flag("--retry", "retry", "restarts after a failure (default 0)", flags.number),
    Flag(
        "--job-restart-policy",
        "restart_policy",
        "after the job has failed: Never (default) or OnFailure",
        kinds=ET,
    ),
    Flag(
        "--worker-restart-policy",
        "worker_restart_policy",
        "of a worker that is lost: Always (default), OnFailure, ExitCode or Never",
        kinds=ET,
    ),
    Flag(
        "--job-backoff-limit",
        "backoff_limit",
        "restarts of the job (default 6)",
        flags.number,
        kinds=ET,
    ),
)
CODE = (
    Flag("--sync-mode", "sync.mode", "git or rsync: code to fetch first", old="--syncMode"),
    Flag("--sync-source", "sync.source", "from where", old="--syncSource"),
)
CONTAINER = (
    Flag("--image", "container.image", "of the containers"),
    Flag("--image-pull-policy", "container.image_pull_policy", "when to pull it"),
    Flag("--image-pull-secret", "container.image_pull_secrets", "to pull it with", many=True),
    Flag("--toleration", "container.tolerations", "of taints on nodes", many=True),
    Flag("--device", "container.devices", "NAME=QUANTITY", many=True),
    Flag("-d --data", "container.data", "CLAIM:PATH to mount", many=True),
    Flag("--data-dir", "container.data_dirs", "HOST[:PATH] to mount", many=True, old="--dataDir"),
    Flag("--config-file", "container.config_files", "HOST[:PATH] to mount", many=True),
    Flag("-a --annotation", "container.annotations", "of the job", many=True),
    Flag(
        "--launcher-annotation",
        "container.launcher_annotations",
        "of the launcher",
        many=True,
        kinds=ET,
    ),
    Flag("--worker-annotation", "container.worker_annotations", "of workers", many=True, kinds=ET),
    Flag(
        "--launcher-selector",
        "container.launcher_selectors",
        "label of the launcher's node",
        many=True,
        kinds=ET,
    ),
    Flag("--scheduler", "container.scheduler", "that places it"),
    Flag("-p --priority", "container.priority", "class of its priority"),
    Flag("--gang", "container.gang", "all or none is placed", switch=True),
    Flag("--queue", "container.queue", "waits in a queue first", switch=True),
    Flag("--rdma", "container.rdma", "with RDMA", switch=True),
    Flag("--hostNetwork", "container.host_network", "of the host", switch=True),
    Flag("--hostIPC", "container.host_ipc", "of the host", switch=True),
    Flag("--hostPID", "container.host_pid", "of the host", switch=True),
    Flag("--share-memory", "container.share_memory", "size of /dev/shm", kinds=PY),
    Flag("--sync-image", "container.sync_image", "that fetches the code", old="--syncImage"),
    Flag("--ssh-secret", "container.ssh_secret", "with keys", kinds=ET),
    Flag("--tensorboard", "container.tensorboard", "beside the job", switch=True),
    Flag("--tensorboard-image", "container.tensorboard_image", "of it", old="--tensorboardImage"),
    Flag("--logdir", "container.logdir", "that it shows"),
    Flag("--model-name", "container.model_name", "to register"),
    Flag("--model-source", "container.model_source", "to register"),
)
GROUPS = {
    "size": SIZE,
    "what runs": RUNNING,
    "code": CODE,
    "kept for a cluster": CONTAINER,
}
FLAGS = tuple(flag for group in GROUPS.values() for flag in group)


def parser(kind: str) -> flags.VerbParser:
    """With the flags of one kind of job; of all kinds if it is "", for a file may say which."""
    made = flags.VerbParser(f"submit {kind}".strip(), f"Submits a job{_of(kind)}.")
    made.usage = f"{made.prog} --name NAME [flags] COMMAND"
    made.renamed = {flag.old: flag.long for flag in FLAGS if flag.old}
    for title, group in GROUPS.items():
        section = made.add_argument_group(title)
        for flag in group:
            if kind in ("", *flag.kinds):
                _add(section, flag)
    made.add_argument("command", metavar="COMMAND", nargs="*", help="in quotes, or after --")
    return made


_METAVARS: dict[Callable[[str], object], str] = {
    flags.number: "N",
    flags.pair: "NAME=VALUE",
    durations.parse: "TIME",
    _waiting: "TIME",
}


def _of(kind: str) -> str:
    return f" of type {kind}" if kind else ""


def _add(section: argparse._ArgumentGroup, flag: Flag) -> None:
    names = flag.names.split()
    if flag.switch:
        flags.switch(section, *names, help=flag.help, default=None)
        return
    section.add_argument(
        *names,
        dest=flag.dest,
        type=flag.read,
        action="append" if flag.many else "store",
        metavar=flag.metavar or _METAVARS.get(flag.read, "VALUE"),
        help=flag.help,
    )
