"""Every flag of `submit` that says something about the job. To add one, add its line here.

`to` is the field of the spec that the value fills; where it is not given, it follows from the name
of the flag, in the plural if it may be repeated. CONTAINER has the fields of `spec.container`:
they mean something only where instances are containers. A flag that was not given leaves no trace,
so that a job file or the default of the spec counts.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace

from midflight import durations
from midflight.arguments import offer
from midflight.cli import flags
from midflight.controller.spec_check import (
    CLEAN_POLICIES,
    JOB_POLICIES,
    RUN_IN,
    SYNC_MODES,
    WORKER_POLICIES,
)

ET = ("etjob",)
PY = ("pytorchjob",)
BOTH = ET + PY


@dataclass(frozen=True)
class Flag:
    names: str  # divided by blanks
    help: str
    read: Callable[[str], object] = str
    to: str = ""
    many: bool = False  # may be given several times
    switch: bool = False
    old: str = ""  # deprecated spelling
    kinds: tuple[str, ...] = BOTH
    metavar: str = ""
    offers: tuple[str, ...] = ()  # by a shell's completion

    @property
    def long(self) -> str:
        return next(name for name in self.names.split() if name.startswith("--"))

    @property
    def dest(self) -> str:
        return self.long[2:].replace("-", "_")

    @property
    def field(self) -> str:
        return self.to or (f"{self.dest}s" if self.many else self.dest)

    def within(self, outer: str) -> "Flag":
        return replace(self, to=f"{outer}.{self.field}")


def _limit(text: str) -> float | None:
    """0 is for ever."""
    return durations.parse(text) or None


SIZE = (
    Flag("--name", "name of the job (required)", metavar="NAME"),
    Flag("--workers", "number of workers (default 1)", flags.number),
    Flag("--min-workers", "fewest workers to train with", flags.number),
    Flag("--max-workers", "most workers to train with", flags.number),
    Flag("--gpus", "GPUs of each worker (default 0)", flags.number),
    Flag("--cpu", "CPU limit of each worker, such as 500m or 2"),
    Flag("--memory", "memory limit of each worker, such as 512Mi or 4Gi"),
    Flag("--selector", "label that its nodes must have", flags.pair, many=True),
)
RUNNING = (
    Flag(
        "--working-dir",
        "where the command runs (default: this folder; with --sync-mode, your home)",
        old="--workingDir",
        metavar="FOLDER",
    ),
    Flag("-e --env", "environment variable of every process", flags.pair, to="env", many=True),
    Flag("--shell", "shell that runs the command (default sh)"),
    Flag(
        "--run-in",
        "launcher: the command starts the training itself; workers: it is the training; "
        "auto: by its words (default)",
        kinds=ET,
        offers=RUN_IN,
    ),
    Flag("-l --label", "label of the job", flags.pair, many=True),
    Flag("--spot-instance", "workers may be preempted", to="spot", switch=True, kinds=ET),
    Flag("--max-wait-time", "fail the job if it still waits then", _limit, kinds=ET),
    Flag("--nproc-per-node", "auto, cpu, gpu or a number", kinds=PY),
    Flag("--running-timeout", "stop the job after this time", _limit, kinds=PY),
    Flag("--ttl-after-finished", "delete the job this long after its end", _limit, kinds=PY),
    Flag(
        "--clean-task-policy",
        "instances to stop at the end: None, Running (default) or All",
        to="clean_policy",
        kinds=PY,
        offers=CLEAN_POLICIES,
    ),
    Flag("--retry", "times to restart it after a failure (default 0)", flags.number),
    Flag(
        "--job-restart-policy",
        "when to restart the whole job: Never (default) or OnFailure",
        to="restart_policy",
        kinds=ET,
        offers=JOB_POLICIES,
    ),
    Flag(
        "--worker-restart-policy",
        "when to replace a worker: Always (default), OnFailure, ExitCode or Never",
        kinds=ET,
        offers=WORKER_POLICIES,
    ),
    Flag(
        "--job-backoff-limit",
        "most restarts of the job (default 6)",
        flags.number,
        to="backoff_limit",
        kinds=ET,
    ),
)
CODE = (
    Flag(
        "--sync-mode",
        "how to fetch the code first: git or rsync",
        to="sync.mode",
        old="--syncMode",
        offers=SYNC_MODES,
    ),
    Flag("--sync-source", "where to fetch the code from", to="sync.source", old="--syncSource"),
)
CONTAINER = (
    Flag("--image", "container image"),
    Flag("--image-pull-policy", "when to pull the image"),
    Flag("--image-pull-secret", "Secret to pull the image with", many=True),
    Flag("--toleration", "taint that its pods tolerate", many=True),
    Flag("--device", "other device, NAME=QUANTITY", many=True),
    Flag("-d --data", "volume claim to mount, CLAIM:PATH", to="data", many=True),
    Flag("--data-dir", "folder to mount, HOST[:PATH]", many=True, old="--dataDir"),
    Flag("--config-file", "file to mount, HOST[:PATH]", many=True),
    Flag("-a --annotation", "annotation of the job", many=True),
    Flag("--launcher-annotation", "annotation of the launcher", many=True, kinds=ET),
    Flag("--worker-annotation", "annotation of the workers", many=True, kinds=ET),
    Flag("--launcher-selector", "label that the launcher's node must have", many=True, kinds=ET),
    Flag("--scheduler", "scheduler of its pods"),
    Flag("-p --priority", "PriorityClass of its pods"),
    Flag("--gang", "place all of its pods or none", switch=True),
    Flag("--queue", "wait in a queue first", switch=True),
    Flag("--rdma", "use RDMA", switch=True),
    Flag("--hostNetwork", "use the host's network", to="host_network", switch=True),
    Flag("--hostIPC", "use the host's IPC namespace", to="host_ipc", switch=True),
    Flag("--hostPID", "use the host's PID namespace", to="host_pid", switch=True),
    Flag("--share-memory", "size of /dev/shm", kinds=PY),
    Flag("--sync-image", "image that fetches the code", old="--syncImage"),
    Flag("--ssh-secret", "Secret with SSH keys", kinds=ET),
    Flag("--tensorboard", "run TensorBoard beside the job", switch=True),
    Flag("--tensorboard-image", "its image", old="--tensorboardImage"),
    Flag("--tensorboard-node-port", "show it to all who reach a node", switch=True),
    Flag("--logdir", "folder that TensorBoard shows"),
    Flag("--model-name", "model to register"),
    Flag("--model-source", "where that model is"),
)
GROUPS = {
    "size": SIZE,
    "what runs": RUNNING,
    "code": CODE,
    "clusters only": tuple(flag.within("container") for flag in CONTAINER),
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
    _limit: "TIME",
}


def _of(kind: str) -> str:
    return f" of type {kind}" if kind else ""


def _add(section: argparse._ArgumentGroup, flag: Flag) -> None:
    names = flag.names.split()
    if flag.switch:
        flags.switch(section, *names, help=flag.help, default=None)
        return
    action = section.add_argument(
        *names,
        dest=flag.dest,
        type=flag.read,
        action="append" if flag.many else "store",
        metavar=flag.metavar or _METAVARS.get(flag.read, "VALUE"),
        help=flag.help,
    )
    offer(action, flag.offers)
