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
    Flag("--name", "name", "name of the job (required)", metavar="NAME"),
    Flag("--workers", "workers", "number of workers (default 1)", flags.number),
    Flag("--min-workers", "min_workers", "fewest workers to train with", flags.number),
    Flag("--max-workers", "max_workers", "most workers to train with", flags.number),
    Flag("--gpus", "gpus", "GPUs of each worker (default 0)", flags.number),
    Flag("--cpu", "cpu", "CPU limit of each worker, such as 500m or 2"),
    Flag("--memory", "memory", "memory limit of each worker, such as 512Mi or 4Gi"),
    Flag("--selector", "selectors", "label that its nodes must have", flags.pair, many=True),
)
RUNNING = (
    Flag(
        "--working-dir",
        "working_dir",
        "where the command runs (default: this folder; with --sync-mode, your home)",
        old="--workingDir",
        metavar="FOLDER",
    ),
    Flag("-e --env", "env", "environment variable of every process", flags.pair, many=True),
    Flag("--shell", "shell", "shell that runs the command (default sh)"),
    Flag(
        "--run-in",
        "run_in",
        "launcher: the command starts the training itself; workers: it is the training; "
        "auto: by its words (default)",
        kinds=ET,
    ),
    Flag("-l --label", "labels", "label of the job", flags.pair, many=True),
    Flag("--spot-instance", "spot", "workers may be preempted", switch=True, kinds=ET),
    Flag(
        "--max-wait-time",
        "max_wait_time",
        "fail the job if it still waits then",
        _waiting,
        kinds=ET,
    ),
    Flag("--nproc-per-node", "nproc_per_node", "auto, cpu, gpu or a number", kinds=PY),
    Flag(
        "--running-timeout", "running_timeout", "stop the job after this time", _waiting, kinds=PY
    ),
    Flag(
        "--ttl-after-finished",
        "ttl_after_finished",
        "delete the job this long after its end",
        _waiting,
        kinds=PY,
    ),
    Flag(
        "--clean-task-policy",
        "clean_policy",
        "instances to stop at the end: None, Running (default) or All",
        kinds=PY,
    ),
    Flag("--retry", "retry", "times to restart it after a failure (default 0)", flags.number),
    Flag(
        "--job-restart-policy",
        "restart_policy",
        "when to restart the whole job: Never (default) or OnFailure",
        kinds=ET,
    ),
    Flag(
        "--worker-restart-policy",
        "worker_restart_policy",
        "when to replace a worker: Always (default), OnFailure, ExitCode or Never",
        kinds=ET,
    ),
    Flag(
        "--job-backoff-limit",
        "backoff_limit",
        "most restarts of the job (default 6)",
        flags.number,
        kinds=ET,
    ),
)
CODE = (
    Flag("--sync-mode", "sync.mode", "how to fetch the code first: git or rsync", old="--syncMode"),
    Flag("--sync-source", "sync.source", "where to fetch the code from", old="--syncSource"),
)
CONTAINER = (
    Flag("--image", "container.image", "container image"),
    Flag("--image-pull-policy", "container.image_pull_policy", "when to pull the image"),
    Flag(
        "--image-pull-secret",
        "container.image_pull_secrets",
        "Secret to pull the image with",
        many=True,
    ),
    Flag("--toleration", "container.tolerations", "taint that its pods tolerate", many=True),
    Flag("--device", "container.devices", "other device, NAME=QUANTITY", many=True),
    Flag("-d --data", "container.data", "volume claim to mount, CLAIM:PATH", many=True),
    Flag(
        "--data-dir",
        "container.data_dirs",
        "folder to mount, HOST[:PATH]",
        many=True,
        old="--dataDir",
    ),
    Flag("--config-file", "container.config_files", "file to mount, HOST[:PATH]", many=True),
    Flag("-a --annotation", "container.annotations", "annotation of the job", many=True),
    Flag(
        "--launcher-annotation",
        "container.launcher_annotations",
        "annotation of the launcher",
        many=True,
        kinds=ET,
    ),
    Flag(
        "--worker-annotation",
        "container.worker_annotations",
        "annotation of the workers",
        many=True,
        kinds=ET,
    ),
    Flag(
        "--launcher-selector",
        "container.launcher_selectors",
        "label that the launcher's node must have",
        many=True,
        kinds=ET,
    ),
    Flag("--scheduler", "container.scheduler", "scheduler of its pods"),
    Flag("-p --priority", "container.priority", "PriorityClass of its pods"),
    Flag("--gang", "container.gang", "place all of its pods or none", switch=True),
    Flag("--queue", "container.queue", "wait in a queue first", switch=True),
    Flag("--rdma", "container.rdma", "use RDMA", switch=True),
    Flag("--hostNetwork", "container.host_network", "use the host's network", switch=True),
    Flag("--hostIPC", "container.host_ipc", "use the host's IPC namespace", switch=True),
    Flag("--hostPID", "container.host_pid", "use the host's PID namespace", switch=True),
    Flag("--share-memory", "container.share_memory", "size of /dev/shm", kinds=PY),
    Flag("--sync-image", "container.sync_image", "image that fetches the code", old="--syncImage"),
    Flag("--ssh-secret", "container.ssh_secret", "Secret with SSH keys", kinds=ET),
    Flag("--tensorboard", "container.tensorboard", "run TensorBoard beside the job", switch=True),
    Flag(
        "--tensorboard-image", "container.tensorboard_image", "its image", old="--tensorboardImage"
    ),
    Flag("--logdir", "container.logdir", "folder that TensorBoard shows"),
    Flag("--model-name", "container.model_name", "model to register"),
    Flag("--model-source", "container.model_source", "where that model is"),
)
GROUPS = {
    "size": SIZE,
    "what runs": RUNNING,
    "code": CODE,
    "clusters only": CONTAINER,
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
    made.add_argument(
        "command", metavar="COMMAND", nargs="*", help="what to run, in quotes or after --"
    )
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
