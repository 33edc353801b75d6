"""`midflight scalein etjob --name JOB`: fewer workers, while they train."""

from collections.abc import Sequence

from midflight.cli import flags, scaling


def main(argv: Sequence[str]) -> int:
    return scaling.run("scalein", argv)


def parser() -> flags.VerbParser:
    return scaling.parser("scalein")
