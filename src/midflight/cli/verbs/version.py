"""`midflight version`."""

import platform
from collections.abc import Sequence

import midflight
from midflight.cli import flags


def main(argv: Sequence[str]) -> int:
    options = parser().read(argv)
    print(midflight.__version__ if options.short else f"midflight {midflight.__version__}")
    if options.verbose:
        print(f"python {platform.python_version()}")
        print(f"platform {platform.system().lower()}/{platform.machine()}")
    return 0


def parser() -> flags.VerbParser:
    made = flags.VerbParser("version", "Prints the version.")
    flags.switch(made, "--short", help="print only the number")
    flags.switch(made, "-v", "--verbose", help="print the Python version and the platform too")
    return made
