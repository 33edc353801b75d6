"""`midflight VERB ...`: finds the verb's file and hands it the rest of the command line.

A verb is a module with `main(argv) -> int`. It is loaded only when it is used, so that no verb
pays for another. To add one, write its file and name it in VERBS.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence

import midflight
from midflight.errors import UsageError
from midflight.run.arguments import Parser, exit_code_of

# verb: (module, what it does)
VERBS = {
    "run": ("midflight.cli.run", "run a training script as an elastic job"),
    "resize": ("midflight.cli.resize", "change how many members a running job has"),
    "status": ("midflight.cli.status", "show how a run is doing"),
    "audit": ("midflight.cli.audit", "prove that every sample was used exactly once"),
    "agent": ("midflight.cli.agent", "serve a run as one of its hosts"),
    "version": ("midflight.cli.version", "print the version"),
}


def main(argv: Sequence[str] | None = None) -> int:
    return exit_code_of(lambda: _dispatch(argv))


def _dispatch(argv: Sequence[str] | None) -> int:
    options = _parser().parse_args(argv)
    if options.verb is None:
        raise UsageError(f"wanted a verb ({', '.join(VERBS)}), got none; see `midflight --help`")
    module, _ = VERBS[options.verb]
    code: int = importlib.import_module(module).main(options.rest)
    return code


def _parser() -> argparse.ArgumentParser:
    lines = [f"  {verb:<9} {what}" for verb, (_, what) in VERBS.items()]
    parser = Parser(
        prog="midflight",
        usage="midflight VERB ...",
        description="Elastic PyTorch training: resize a running job without restarting it.",
        epilog="\n".join(["verbs:", *lines, "", "`midflight VERB --help` tells more."]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"midflight {midflight.__version__}")
    parser.add_argument("verb", metavar="VERB", nargs="?", choices=VERBS, help=argparse.SUPPRESS)
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
