"""`horovodrun` inside a job: its flags, translated into those of `midflight run`.

What says how many processes run, where and for how long has the same meaning there; what tunes
Horovod's own transport has none, and is named once as ignored.
"""

import argparse
import os
from collections.abc import Sequence

from midflight.errors import UsageError
from midflight.run.arguments import Parser, say
from midflight.run.hosted import MEMBER
from midflight.run.main import main as run

_SAME = {  # destination: the flag of `midflight run`
    "np": "-np",
    "min_np": "--min-np",
    "max_np": "--max-np",
    "start_timeout": "--start-timeout",
    "elastic_timeout": "--elastic-timeout",
    "reset_limit": "--reset-limit",
    "slots": "--slots-per-host",
    "hosts": "--hosts",
    "hostfile": "--hostfile",
    "script": "--host-discovery-script",
    "output": "--output-dir",
}
_WITHOUT_MEANING = (  # they take a value
    *("--network-interface", "--network-interfaces", "--ssh-port", "--ssh-identity-file"),
    *("--fusion-threshold-mb", "--cycle-time-ms", "--cache-capacity", "--timeline-filename"),
    *("--stall-check-warning-time-seconds", "--stall-check-shutdown-time-seconds"),
    *("--gloo-timeout-seconds", "--num-nccl-streams", "--thread-affinity", "--mpi-args"),
    *("--binding-args", "--log-level"),
)
_SWITCHES_WITHOUT_MEANING = (
    *("--disable-cache", "--gloo", "--mpi", "--jsrun", "--tcp", "--no-stall-check"),
    *("--mpi-threads-disable", "--timeline-mark-cycles", "--autotune"),
    *("--log-with-timestamp", "--log-without-timestamp"),
)


def main(argv: Sequence[str]) -> int:
    if os.environ.get(MEMBER):
        raise UsageError(
            "horovodrun was started inside a worker: the job's command names no launcher, so it "
            "was run in every worker; submit it with --run-in launcher"
        )
    return run(translated(argv))


def translated(argv: Sequence[str]) -> list[str]:
    """The command line of `midflight run` that means the same."""
    given = parser().parse_args(argv)
    words: list[str] = []
    for name, flag in _SAME.items():
        if getattr(given, name) is not None:
            words += [flag, getattr(given, name)]
    if given.cooldown is not None:
        words += ["--cooldown", *given.cooldown]
    words += ["--timestamps"] if given.timestamps else []
    words += ["--verbose"] if given.verbose else []
    ignored = sorted(set(given.ignored or ()) - {"--log-level"})
    if ignored:
        say(f"ignored, it has no meaning here: {', '.join(ignored)}")
    return [*words, "--", *given.command]


class _Ignore(argparse.Action):
    """Remembers that the flag was there."""

    def __call__(
        self, parser: object, namespace: object, values: object, flag: str | None = None
    ) -> None:
        namespace.ignored = [*(getattr(namespace, "ignored", None) or ()), flag]  # type: ignore[attr-defined]


def parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="horovodrun",
        usage="horovodrun [options] COMMAND ...",
        description="Runs a script as an elastic job; takes the flags of the original.",
        allow_abbrev=False,
    )
    parser.set_defaults(ignored=None)
    add = parser.add_argument
    add("-np", "--num-proc", dest="np", metavar="N", help="processes to start with")
    add("--min-np", "--min-num-proc", dest="min_np", metavar="N", help="fewer are not used")
    add("--max-np", "--max-num-proc", dest="max_np", metavar="N", help="more are not used")
    add("--start-timeout", metavar="S", help="how long to wait for the slots of -np")
    add("--elastic-timeout", metavar="S", help="how long to wait when too few are left")
    add("--reset-limit", metavar="N", help="failures after which the job gives up")
    add("--slots-per-host", "--slots", dest="slots", metavar="N", help="where a host names none")
    add("-H", "--hosts", metavar="HOST:SLOTS,...", help="the hosts to use")
    add("-hostfile", "--hostfile", metavar="FILE", help="lines `HOST slots=N`")
    add("--host-discovery-script", dest="script", metavar="SCRIPT", help="prints the hosts")
    add("--blacklist-cooldown-range", dest="cooldown", nargs=2, metavar=("MIN", "MAX"))
    add("--output-filename", dest="output", metavar="DIR", help="keep each process's output")
    add("-prefix-timestamp", "--prefix-output-with-timestamp", dest="timestamps",
        action="store_true", help="before each line")  # fmt: skip
    add("--verbose", action="store_true", help="tell what is being done")
    for flag in _WITHOUT_MEANING:
        add(flag, action=_Ignore, help=argparse.SUPPRESS)
    for flag in _SWITCHES_WITHOUT_MEANING:
        add(flag, action=_Ignore, nargs=0, help=argparse.SUPPRESS)
    add("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="what to run")
    return parser
