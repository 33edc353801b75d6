"""`midflight version`."""

from collections.abc import Sequence

import midflight
from midflight.run.arguments import Parser


def main(argv: Sequence[str]) -> int:
    Parser(prog="midflight version", description="Prints the version.").parse_args(argv)
    print(f"midflight {midflight.__version__}")
    return 0
