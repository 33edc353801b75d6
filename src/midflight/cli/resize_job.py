"""`midflight resize JOB --to N`: another number of workers, for any elastic job.

`resize` itself decides whether a name is that of a job of the server's or of a run.
"""

from collections.abc import Sequence

from midflight.cli import flags, scaling
from midflight.errors import UsageError


def main(argv: Sequence[str]) -> int:
    options = parser().read(argv)
    if options.to is None:
        raise UsageError('required flag(s) "to" not set')
    wish = {"to": options.to, "timeout": options.timeout, "partial": options.partial}
    return scaling.ask(options, options.job, wish)


def parser() -> flags.VerbParser:
    made = flags.VerbParser("resize", "Changes the number of workers while they train.")
    made.add_argument("job", metavar="JOB", help="its name")
    made.add_argument("--to", type=flags.number, metavar="N", help="so many workers; needed")
    flags.switch(made, "--wait", help="for the outcome (default: yes)", default=True)
    scaling.add_wishes(made)
    return made
