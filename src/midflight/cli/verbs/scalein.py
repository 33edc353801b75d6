"""`midflight scalein etjob --name JOB`: fewer workers, while they train."""

from collections.abc import Sequence

from midflight.cli import flags, scale_operations


def main(argv: Sequence[str]) -> int:
    return scale_operations.run("scalein", argv)


def parser() -> flags.VerbParser:
    return scale_operations.parser("scalein")
