"""`midflight scaleout etjob --name JOB`: more workers, while they train."""

from collections.abc import Sequence

from midflight.cli import flags, scaling


def main(argv: Sequence[str]) -> int:
    return scaling.run("scaleout", argv)


def parser() -> flags.VerbParser:
    return scaling.parser("scaleout")
