"""`midflight scaleout etjob --name JOB`: more workers, while they train."""

from collections.abc import Sequence

from midflight.cli import flags, scale_operations


def main(argv: Sequence[str]) -> int:
    return scale_operations.run("scaleout", argv)


def parser() -> flags.VerbParser:
    return scale_operations.parser("scaleout")
