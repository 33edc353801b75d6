"""The coordinator alone, with a thousand simulated members. To be written by the main author."""

from bench.processes import BenchError
from bench.rows import Row


def run() -> list[Row]:
    """One repeat: joins, a resize, ten lost at once; rows of time and memory."""
    raise BenchError("bench/coordinator_case.py is a stub that the main author fills in")
