"""From torchrun's words to what this process is to do: one frozen Options.

Everything that can be wrong with a flag is found here, before anything is started, and said in one
line that names the flag.
"""

import argparse
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from midflight.compat.torchelastic import flags
from midflight.compat.torchelastic.rendezvous import Rendezvous, Words, understand
from midflight.compat.torchelastic.streams import LogOptions, parse_streams
from midflight.errors import UsageError
from midflight.protocol.dialect import Dialect
from midflight.protocol.job import JobSpec

GRACE = 3.0  # seconds in which workers can leave before they are killed
MOST_WORKERS = 10_000
_TORCH_SECONDS = 120.0
_GPUS = "import torch; print(torch.cuda.device_count())"
_DEVICES = "import torch; a = torch.accelerator; print(a.is_available() and a.device_count() or 0)"
_COUNT = {"gpu": _GPUS, "auto": _DEVICES}


@dataclass(frozen=True)
class Options:
    rendezvous: Rendezvous
    min_nodes: int
    max_nodes: int
    nproc: int
    max_restarts: int | None  # None: not given
    role: str
    command: tuple[str, ...]
    title: str  # the script, as the failure summary names it
    logs: LogOptions
    local_addr: str | None
    grace: float
    warm: int
    virtual_local_rank: bool
    signals: tuple[signal.Signals, ...]
    notes: tuple[str, ...]  # lines about flags without meaning

    def spec(self) -> JobSpec:
        """The job, as the node that carries its coordinator sees it."""
        return JobSpec(
            name=self.rendezvous.run_id,
            command=self.command,
            np=self.max_nodes * self.nproc,
            min_np=self.min_nodes * self.nproc,
            max_np=self.max_nodes * self.nproc,
            elastic_timeout=self.rendezvous.join_timeout,
            reset_limit=self.max_restarts,
            cooldown_min=0.0,
            cooldown_max=0.0,
            grace=max(self.grace, 0.1),
            lease=self.rendezvous.lease,
            dialect=Dialect(
                max_restarts=self.max_restarts or 0,
                last_call=self.rendezvous.last_call,
                hosts_by_name=self.rendezvous.backend == "static",
                by_rank=True,
                prefix="",
            ),
        )


def parse(argv: Sequence[str] | None, environ: Mapping[str, str]) -> Options:
    words = flags.parser(environ).parse_args(argv)
    least, most = parse_nodes(words.nnodes)
    rendezvous, notes = understand(
        Words(
            backend=words.rdzv_backend,
            endpoint=words.rdzv_endpoint.strip(),
            run_id=words.rdzv_id,
            config=words.rdzv_conf,
            standalone=words.standalone,
            node_rank=words.node_rank,
            master_addr=words.master_addr,
            master_port=words.master_port,
            min_nodes=least,
            max_nodes=most,
        )
    )
    if rendezvous.backend == "static" and not rendezvous.node_rank < most:
        raise UsageError(f"--node-rank wants less than --nnodes {most}, got {words.node_rank}")
    return Options(
        rendezvous=rendezvous,
        min_nodes=least,
        max_nodes=most,
        nproc=worker_count(words.nproc_per_node),
        max_restarts=words.max_restarts,
        role=words.role,
        command=_command(words, environ),
        title=words.training_script,
        logs=_logs(words),
        local_addr=words.local_addr,
        grace=GRACE if words.shutdown_timeout is None else words.shutdown_timeout,
        warm=words.warm or 0,
        virtual_local_rank=words.virtual_local_rank,
        signals=_signals(words.signals_to_handle),
        notes=(*notes, *_without_meaning(words)),
    )


def parse_nodes(text: str) -> tuple[int, int]:
    least, colon, most = text.partition(":")
    most = most if colon else least
    if not (least.isdecimal() and most.isdecimal()) or not 0 < int(least) <= int(most):
        raise UsageError(f"--nnodes wants a number, or MIN:MAX with 0 < MIN <= MAX, got {text!r}")
    return int(least), int(most)


def worker_count(text: str) -> int:
    """A number, or what this machine has of something; torch is asked, in a process of its own."""
    if text.isdecimal() and 0 < int(text) <= MOST_WORKERS:
        return int(text)
    if text == "cpu":
        return _cores()
    if text not in _COUNT:
        raise UsageError(
            f"--nproc-per-node wants a number from 1 to {MOST_WORKERS}, auto, gpu or cpu, "
            f"got {text!r}"
        )
    found = _ask_torch(_COUNT[text])
    if found == 0 and text == "gpu":
        raise UsageError("--nproc-per-node=gpu wants a GPU, and torch finds none here")
    return found or _cores()


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _ask_torch(code: str) -> int:
    command = [sys.executable, "-c", code]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TORCH_SECONDS)
    except subprocess.TimeoutExpired:
        raise UsageError(f"--nproc-per-node: torch did not load in {_TORCH_SECONDS:g} s") from None
    if done.returncode != 0 or not done.stdout.strip().isdecimal():
        last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise UsageError(f"--nproc-per-node: torch cannot tell ({last}); give a number")
    return int(done.stdout)


def _command(words: argparse.Namespace, environ: Mapping[str, str]) -> tuple[str, ...]:
    script, rest = words.training_script, words.training_script_args
    if words.run_path:
        if not os.path.isabs(script):
            raise UsageError(f"--run-path wants an absolute path, got {script!r}")
        return (sys.executable, "-u", script, *rest)
    if words.no_python:
        if words.module:
            raise UsageError("wanted --no-python or --module, got both")
        return (script, *rest)
    python = environ.get("PYTHON_EXEC", sys.executable)
    front = (python, "-u", *(("-m",) if words.module else ()), script)
    if words.local_rank_argument and not words.use_env:  # it differs, and the command does not
        line = f'exec {shlex.join(front)} --local-rank="$LOCAL_RANK" "$@"'
        return ("/bin/sh", "-c", line, "sh", *rest)
    return (*front, *rest)


def _logs(words: argparse.Namespace) -> LogOptions:
    shown = words.local_ranks_filter
    parts = shown.split(",") if shown else []
    if not all(part.strip().isdecimal() for part in parts):
        raise UsageError(f"--local-ranks-filter wants numbers such as 0,1, got {shown!r}")
    if words.log_dir and os.path.isfile(words.log_dir):
        raise UsageError(f"--log-dir wants a folder, and {words.log_dir} is a file")
    return LogOptions(
        folder=None if words.log_dir == os.devnull else words.log_dir,
        redirects=parse_streams("--redirects", words.redirects),
        tee=parse_streams("--tee", words.tee),
        shown=frozenset(int(part) for part in parts) or None,
    )


def _signals(text: str) -> tuple[signal.Signals, ...]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    known = {number.name: number for number in signal.Signals}
    for name in names:
        if name not in known or name in ("SIGKILL", "SIGSTOP", "SIGCHLD"):
            raise UsageError(f"--signals-to-handle wants names such as SIGTERM, got {name!r}")
    return tuple(known[name] for name in dict.fromkeys(names))


def _without_meaning(words: argparse.Namespace) -> list[str]:
    return [
        f"--{name.replace('_', '-')} has no effect here: {why}"
        for name, why in flags.WITHOUT_MEANING.items()
        if getattr(words, name) is not None
    ]
