"""horovodrun's command line, flag by flag: names, types, which exclude each other.

What each flag means here is decided elsewhere (`options`, `tunables`). Names may be shortened as
long as they stay unambiguous, as in the original: `--slots` is `--slots-per-host`. A flag that
was not given is None, so that a config file can fill it in.
"""

import argparse
from collections.abc import Sequence

from midflight.arguments import Parser, count_from, seconds
from midflight.compat import horovod
from midflight.errors import UsageError

_COUNT = count_from(1)
LOG_LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL")
# There is no MPI, no jsrun and no ssh here, and no cache of checks; flag by destination.
WITHOUT_MEANING = {
    "use_mpi": "--mpi",
    "use_jsrun": "--jsrun",
    "mpi_args": "--mpi-args",
    "mpi_threads_disable": "--mpi-threads-disable",
    "binding_args": "--binding-args",
    "ssh_port": "--ssh-port",
    "ssh_identity_file": "--ssh-identity-file",
    "disable_cache": "--disable-cache",
}


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """What was given, or a UsageError that names what is wrong."""
    given = parser().parse_args(argv)
    if given.command[:1] == ["--"]:
        del given.command[0]
    if given.num_proc is None and not given.check_build:
        raise UsageError(
            "the following arguments are required: -np/--num-proc; see `horovodrun --help`"
        )
    return given


def parser() -> argparse.ArgumentParser:
    made = Parser(
        prog="horovodrun",
        usage="horovodrun -np N [options] COMMAND ...",
        description="Runs a training script in several processes; takes Horovod's own flags.",
    )
    add = made.add_argument
    add("-v", "--version", action="version", version=horovod.__version__)
    add("-np", "--num-proc", type=_COUNT, metavar="N", help="processes to start with (needed)")
    add("-cb", "--check-build", action="store_true", help="show what there is, and end")
    add("--verbose", action="store_true", default=None, help="print what Midflight is doing")
    add("--config-file", metavar="YAML", help="tuning flags from a file; those given here win")
    add("--start-timeout", type=seconds, metavar="S", help="how long -np slots are waited for (30)")
    add("--network-interfaces", dest="nics", action=_Interfaces, metavar="NAME,...",
        help="for NCCL")  # fmt: skip
    add("--network-interface", dest="nics", action=_Interfaces, metavar="NAME", help="the same")
    add("--midflight-outcome", metavar="FILE", help=argparse.SUPPRESS)  # for horovod.run
    add("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="what to run")
    _add_hosts(made)
    _add_elastic(made)
    _add_output(made)
    _add_tuning(made)
    _add_checks(made)
    _add_without_meaning(made)
    return made


def _add_hosts(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("where (default: this machine)")
    add = group.add_mutually_exclusive_group().add_argument
    add("-H", "--hosts", metavar="HOST:SLOTS,...", help="the hosts to use")
    add("-hostfile", "--hostfile", metavar="FILE", help="lines `HOST slots=N`")
    add("--host-discovery-script", metavar="SCRIPT", help="prints the hosts, each second anew")
    group.add_argument("--slots-per-host", dest="slots", type=_COUNT, metavar="N",
                       help="for hosts that a script names without a number")  # fmt: skip


def _add_elastic(made: argparse.ArgumentParser) -> None:
    add = made.add_argument_group("elastic (with --min-np or a discovery script)").add_argument
    add("--min-np", "--min-num-proc", dest="min_num_proc", type=_COUNT, metavar="N",
        help="training pauses with fewer members (default: -np)")  # fmt: skip
    add("--max-np", "--max-num-proc", dest="max_num_proc", type=_COUNT, metavar="N",
        help="more are never used (default: no limit)")  # fmt: skip
    add("--elastic-timeout", type=seconds, metavar="S", help="how long too few may be there (600)")
    add("--reset-limit", type=count_from(0), metavar="N",
        help="failures after which the job gives up")  # fmt: skip
    add("--blacklist-cooldown-range", dest="cooldown_range", type=int, nargs=2,
        metavar=("MIN", "MAX"), help="how long a host that failed is avoided (5 300)")  # fmt: skip


def _add_output(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("output")
    group.add_argument("--output-filename", metavar="DIR",
                       help="also keep it, in DIR/rank.N/stdout and stderr")  # fmt: skip
    group.add_argument("--log-level", choices=LOG_LEVELS, help="of the launcher and the library")
    stamps = group.add_mutually_exclusive_group()
    stamps.add_argument("-prefix-timestamp", "--prefix-output-with-timestamp", action="store_true",
                        dest="timestamps", help="before each line")  # fmt: skip
    _switch(stamps, "--log-with-timestamp", "--log-without-timestamp", "log_with_timestamp")
    _switch(stamps, "--no-log-hide-timestamp", "--log-hide-timestamp", "log_with_timestamp")


def _add_tuning(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("tuning (becomes HOROVOD_* variables of the processes)")
    add = group.add_argument
    add("--fusion-threshold-mb", type=int, metavar="MB")
    add("--cycle-time-ms", type=float, metavar="MS")
    add("--cache-capacity", type=int, metavar="N")
    for what in ("hierarchical-allreduce", "hierarchical-allgather", "torus-allreduce", "autotune"):
        _switch(group.add_mutually_exclusive_group(), f"--{what}", f"--no-{what}")
    add("--autotune-log-file", metavar="FILE")
    add("--autotune-warmup-samples", type=int, metavar="N")
    add("--autotune-steps-per-sample", type=int, metavar="N")
    add("--autotune-bayes-opt-max-samples", type=int, metavar="N")
    add("--autotune-gaussian-process-noise", type=float, metavar="SHARE")
    add("--num-nccl-streams", type=int, metavar="N")
    add("--thread-affinity", type=int, metavar="CPU")
    add("--gloo-timeout-seconds", type=int, metavar="S")
    add("--tcp", dest="tcp_flag", action="store_true", default=None)


def _add_checks(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("timeline and stall check (variables as well)")
    add = group.add_argument
    add("--timeline-filename", metavar="FILE")
    _switch(
        group.add_mutually_exclusive_group(), "--timeline-mark-cycles", "--no-timeline-mark-cycles"
    )
    _switch(group.add_mutually_exclusive_group(), "--no-stall-check", "--stall-check")
    add("--stall-check-warning-time-seconds", type=int, metavar="S")
    add("--stall-check-shutdown-time-seconds", type=int, metavar="S")


def _add_without_meaning(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("taken, and without a meaning here")
    controller = group.add_mutually_exclusive_group()
    for flag in ("gloo", "mpi", "jsrun"):
        controller.add_argument(f"--{flag}", dest=f"use_{flag}", action="store_true", default=None)
    add = group.add_argument
    add("-p", "--ssh-port", type=int, metavar="PORT")
    add("-i", "--ssh-identity-file", metavar="FILE")
    add("--mpi-args", metavar="ARGS")
    add("--binding-args", metavar="ARGS")
    add("--disable-cache", action="store_true", default=None)
    _switch(
        group.add_mutually_exclusive_group(), "--mpi-threads-disable", "--no-mpi-threads-disable"
    )


def _switch(
    group: argparse._MutuallyExclusiveGroup, yes: str, no: str, dest: str | None = None
) -> None:
    """A pair of flags that say yes and no to the same thing; None if neither was given."""
    name = dest or yes.removeprefix("--").replace("-", "_")
    group.add_argument(yes, dest=name, action="store_const", const=True)
    group.add_argument(no, dest=name, action="store_const", const=False, help=argparse.SUPPRESS)


class _Interfaces(argparse.Action):
    """Collects names, however often and in whichever way they are given."""

    def __call__(
        self, parser: object, namespace: object, values: object, option: str | None = None
    ) -> None:
        found = getattr(namespace, self.dest) or ()
        more = tuple(name for name in str(values).split(",") if name and name not in found)
        setattr(namespace, self.dest, (*found, *more))
