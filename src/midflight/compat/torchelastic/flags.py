"""torchrun's command line: the flags, their spellings, and the PET_ variables behind them.

Only the words are read here; what they mean is decided in `options`. Every flag with a dash has an
underscored twin. A flag that is not given is taken from PET_ and its name, as there.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from midflight.arguments import seconds
from midflight.errors import UsageError

PROGRAM = "torchrun"
START_METHODS = ("spawn", "fork", "forkserver")
NUMA_MODES = ("node", "socket", "exclusive", "core-complex")
SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
# Flags that change nothing here; given by somebody, they are answered with one line.
WITHOUT_MEANING = {
    "monitor_interval": "the end of a worker is noticed at once",
    "start_method": "workers are processes of their own in any case",
    "event_log_handler": "events are not logged through handlers",
    "logs_specs": "log files are laid out in the usual way",
    "numa_binding": "workers are not bound to cores",
    "duplicate_stdout_filters": "use --tee and filter the files",
    "duplicate_stderr_filters": "use --tee and filter the files",
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `{PROGRAM} --help`")


class _Table:
    """Adds flags to a parser, each with its PET_ variable as the default."""

    def __init__(self, parser: argparse.ArgumentParser, environ: Mapping[str, str]) -> None:
        self._parser = parser
        self._environ = environ

    def value(self, *names: str, default: Any = None, **more: Any) -> None:
        dest = _dest(names)
        found = self._environ.get(f"PET_{dest.upper()}", default)
        self._parser.add_argument(*_twins(names), dest=dest, default=found, **more)

    def switch(self, *names: str, help: str) -> None:
        dest = _dest(names)
        text = self._environ.get(f"PET_{dest.upper()}", "0")
        if not text.isdecimal():
            raise UsageError(f"PET_{dest.upper()} wants 0 or 1, got {text!r}")
        self._parser.add_argument(
            *_twins(names), dest=dest, action="store_true", default=bool(int(text)), help=help
        )


def _dest(names: Sequence[str]) -> str:
    longest = next(name for name in names if name.startswith("--"))
    return longest[2:].replace("-", "_")


def _twins(names: Sequence[str]) -> list[str]:
    twins = (name[:2] + name[2:].replace("-", "_") for name in names if name.startswith("--"))
    return list(dict.fromkeys((*names, *twins)))


def _number(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"wanted a whole number from {least} on, got {text!r}")
        return int(text)

    return read


def parser(environ: Mapping[str, str]) -> argparse.ArgumentParser:
    made = _Parser(
        prog=PROGRAM,
        description="Starts a script on each node as several processes, watches over them, and "
        "changes their number while they train. Takes torchrun's flags.",
    )
    table = _Table(made, environ)
    _nodes(table)
    _rendezvous(table)
    _launching(table)
    _logs(table)
    made.add_argument("training_script", help="the script, or with -m the module, to run")
    made.add_argument("training_script_args", nargs=argparse.REMAINDER, help="what it is given")
    return made


def _nodes(table: _Table) -> None:
    table.value("--nnodes", default="1:1", help="number of nodes, or MIN:MAX")
    table.value("--nproc-per-node", default="1", help="workers per node: a number, auto, gpu, cpu")
    table.value("--node-rank", type=_number(0), default=0, help="of this node, if static")
    table.value("--local-addr", help="what the other nodes reach this one at")
    table.value("--master-addr", default="127.0.0.1", help="of node 0, if static")
    table.value("--master-port", type=_number(1), help="of node 0, if static (29500)")


def _rendezvous(table: _Table) -> None:
    table.value("--rdzv-backend", help="c10d, etcd, etcd-v2, static or midflight")
    table.value("--rdzv-endpoint", default="", help="HOST[:PORT]")
    table.value("--rdzv-id", default="none", help="name of the job, the same on all nodes")
    table.value("--rdzv-conf", default="", help="KEY=VALUE,... more about the rendezvous")
    table.switch("--standalone", help="a job of this node alone, with a name and port of its own")


def _launching(table: _Table) -> None:
    table.value("--max-restarts", type=_number(0), help="failures after which all start anew (0)")
    table.value("--monitor-interval", type=seconds, help="no effect")
    table.value("--start-method", choices=START_METHODS, help="no effect")
    table.value("--event-log-handler", help="no effect")
    table.value("--numa-binding", choices=NUMA_MODES, help="no effect")
    table.value("--role", default="default", help="of the workers, for their names in logs")
    table.switch("-m", "--module", help="the script is a module, as with python -m")
    table.switch("--no-python", help="run the script by itself, without python in front")
    table.switch("--local-rank-argument", help="workers get --local-rank=N (beyond torchrun)")
    table.switch("--use-env", help="they do not, as with torch.distributed.launch")
    table.switch("--run-path", help="the script is an absolute path")
    table.switch("--virtual-local-rank", help="each worker sees its own GPU as device 0")
    table.value("--signals-to-handle", default=SIGNALS, help="signals that end this node's part")
    table.value("--shutdown-timeout", type=seconds, help="seconds workers get to leave (3)")
    table.value("--warm", type=_number(0), help="workers kept ready to start (beyond torchrun)")


def _logs(table: _Table) -> None:
    table.value("--log-dir", help="folder of the log files")
    table.value("-r", "--redirects", default="0", help="streams that go to files: 1, 2, 3, or 0:3")
    table.value("-t", "--tee", default="0", help="streams that go to files and to the terminal")
    table.value("--local-ranks-filter", default="", help="only these show on the terminal: 0,1")
    table.value("--logs-specs", help="no effect")
    table.value("--duplicate-stdout-filters", help="no effect")
    table.value("--duplicate-stderr-filters", help="no effect")
