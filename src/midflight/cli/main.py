"""`midflight VERB ...`, or `arena VERB ...`: finds the verb's file and hands it the rest.

A verb is a module with `main(argv) -> int` and `parser()`. It is loaded only when it is used, so
that no verb pays for another. To add one, write its file and name it in VERBS.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence

import midflight
from midflight.cli import common_flags, program, stdout
from midflight.errors import UsageError
from midflight.run.arguments import Parser, exit_code_of

# verb: (module, what it does), in the order in which they are listed
VERBS = {
    "submit": ("midflight.cli.submit", "submit a job"),
    "list": ("midflight.cli.list", "list the jobs"),
    "get": ("midflight.cli.get", "show a job, its instances and its scale operations"),
    "logs": ("midflight.cli.logs", "print what a job has printed"),
    "scaleout": ("midflight.cli.scaleout", "add workers to a running job"),
    "scalein": ("midflight.cli.scalein", "take workers from a running job"),
    "resize": ("midflight.cli.resize", "change the size of a running job or run"),
    "wait": ("midflight.cli.wait", "wait until a job runs, has ended or is gone"),
    "delete": ("midflight.cli.delete", "delete jobs"),
    "prune": ("midflight.cli.prune", "delete jobs that ended a while ago"),
    "top": ("midflight.cli.top", "show what nodes and jobs use"),
    "events": ("midflight.cli.events", "show what happened"),
    "path": ("midflight.cli.path", "print the folder of a job"),
    "attach": ("midflight.cli.attach", "run a command where a job runs"),
    "chaos": ("midflight.cli.chaos", "rehearse a failure"),
    "context": ("midflight.cli.context", "show or choose where all this happens"),
    "node": ("midflight.cli.node", "cordon, drain, lose and bring back nodes"),
    "up": ("midflight.cli.up", "start the server, with simulated nodes if wanted"),
    "down": ("midflight.cli.down", "end the server; jobs go on"),
    "status": ("midflight.cli.status", "show how the server, or a run, is doing"),
    "operator": ("midflight.cli.operator", "run jobs on Kubernetes, or install what does"),
    "run": ("midflight.cli.run", "run a training script as an elastic job, without a server"),
    "audit": ("midflight.cli.audit", "prove that every sample was used exactly once"),
    "agent": ("midflight.cli.agent", "serve a run as one of its hosts"),
    "shell": ("midflight.cli.shell", "a shell, or a command, that finds horovodrun and the like"),
    "data": ("midflight.cli.data", "list the volumes of data"),
    "whoami": ("midflight.cli.whoami", "say who you are"),
    "completion": ("midflight.cli.completion", "print a completion script for a shell"),
    "version": ("midflight.cli.version", "print the version"),
}
ALIASES = {"ls": "list", "log": "logs", "del": "delete"}
HIDDEN = {"horovodrun": ("midflight.cli.horovodrun", "what a job's own horovodrun calls")}


def main(argv: Sequence[str] | None = None) -> int:
    stdout.be_there()
    return exit_code_of(lambda: stdout.told(_dispatch, sys.argv[1:] if argv is None else argv))


def arena(argv: Sequence[str] | None = None) -> int:
    return main(argv)


def _dispatch(argv: Sequence[str]) -> int:
    common, rest = common_flags.take(argv)
    common_flags.use(common)
    options = parser().parse_args(rest)
    if options.verb is None:
        raise UsageError(
            f"wanted a verb ({', '.join(VERBS)}), got none; see `{program.name()} --help`"
        )
    code: int = importlib.import_module(_module(options.verb)).main(options.rest)
    return code


def _module(verb: str) -> str:
    found = {**VERBS, **HIDDEN}.get(ALIASES.get(verb, verb))
    if found is None:
        from difflib import get_close_matches

        close = get_close_matches(verb, [*VERBS, *ALIASES], 1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise UsageError(f"no verb is called {verb!r}; {hint}see `{program.name()} --help`")
    return found[0]


def parser() -> argparse.ArgumentParser:
    name = program.name()
    lines = [f"  {verb:<10} {what}" for verb, (_, what) in VERBS.items()]
    top = Parser(
        prog=name,
        usage=f"{name} VERB ...",
        description="Elastic PyTorch training: resize a running job without restarting it.",
        epilog="\n".join(["verbs:", *lines, "", f"`{name} VERB --help` tells more."]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"midflight {midflight.__version__}")
    top.add_argument("verb", metavar="VERB", nargs="?", help=argparse.SUPPRESS)
    top.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return top


if __name__ == "__main__":
    sys.exit(main())
