"""`midflight events [JOB]`: what has happened, to one job or to all, or who has asked for it."""

import contextlib
import json
import os
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from midflight.cli import flags, jobs, output
from midflight.cli.cluster import connect, kubernetes
from midflight.cli.job_tables import event_row
from midflight.cli.output import table
from midflight.errors import NotFound
from midflight.home import home
from midflight.protocol.audit import AUDIT, TORCHRUN_AUDIT

_COLUMNS = ("SOURCE", "TYPE", "AGE", "MESSAGE")
_KEYS = ("at", "about", "what")  # without which a line says nothing
_WHO = ("at", "user", "pid", "from", "what", "outcome", "reason")


def main(argv: Sequence[str]) -> int:
    options = parser().read(argv)
    if options.who:
        return _show_who(options)
    try:
        found = connect().events(options.scope, options.job)
    except NotFound:
        raise NotFound(jobs.missing(options.scope, options.job)) from None
    if output.data(options.output, found, (each["source"] for each in found)):
        return 0
    if options.job:
        print(table(_COLUMNS, [event_row(each) for each in found]))
    else:
        rows = [(each["namespace"], each["job"] or "-", *event_row(each)) for each in found]
        print(table(("NAMESPACE", "JOB", *_COLUMNS), rows))
    return 0


def _show_who(options: Namespace) -> int:
    cluster = kubernetes()
    found = _here(options) if cluster is None else cluster.requests(options.scope, options.job)
    if not output.data(options.output, found, (each["what"] for each in found)):
        print(table([column.upper() for column in _WHO], [_who_row(each) for each in found]))
    return 0


def _here(options: Namespace) -> list[dict[str, Any]]:
    """From the files of the server and of the runs: they are this user's, and need no server."""
    root = home(os.environ)
    found = [said for said in requests_in(root) if _is_meant(said["about"], options)]
    if not options.said_namespace:  # a run has none
        for folder in sorted(root.glob(f"runs/{options.job or '*'}")):
            found += requests_in(folder)
        jobs_of_torchrun = requests_in(root, TORCHRUN_AUDIT)
        found += [said for said in jobs_of_torchrun if options.job in ("", said["about"])]
    return sorted(found, key=lambda said: str(said["at"]))


def requests_in(folder: Path, name: str = AUDIT) -> Iterator[dict[str, Any]]:
    for path in (folder / f"{name}.1", folder / name):
        lines = path.read_text("utf-8", "replace").split("\n") if path.exists() else []
        for line in lines:
            with contextlib.suppress(ValueError, RecursionError):  # the last one of a full disk
                said = json.loads(line)
                if isinstance(said, dict) and all(isinstance(said.get(k), str) for k in _KEYS):
                    yield said


def _is_meant(about: str, options: Namespace) -> bool:
    namespace, _, name = about.rpartition("/")
    return options.scope in ("*", namespace) and options.job in ("", name)


def _who_row(said: dict[str, Any]) -> list[str]:
    return ["-" if (value := said.get(column)) in ("", None) else str(value) for column in _WHO]


def parser() -> flags.VerbParser:
    made = flags.VerbParser("events", "Shows events, oldest first.")
    made.add_argument(
        "job", metavar="JOB", nargs="?", default="", help="only the events of this job"
    )
    flags.switch(made, "--who", help="show who asked for what, and whether it was done")
    flags.add_all_namespaces(made)
    output.add(made)
    return made
