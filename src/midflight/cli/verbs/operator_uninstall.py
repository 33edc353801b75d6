"""`midflight operator uninstall`: takes the operator off a cluster.

Asks first. Where jobs are left, it wants to be told what becomes of them;
`kubernetes/install/removal.py` has the order in which things go.
"""

import argparse
import sys
from collections.abc import Sequence

from midflight.cli import flags, messages
from midflight.cli.operators import add_timeout, connect, print_each, verb
from midflight.cli.progress import Progress
from midflight.errors import NotFound, Refused, UsageError
from midflight.quantities import counted


def main(argv: Sequence[str]) -> int:
    from midflight.kubernetes.install import inspection, manifests, removal

    options = parser().read(argv)
    if options.keep_jobs and options.delete_jobs:
        raise UsageError("wanted --keep-jobs or --delete-jobs, got both")
    namespace = options.said_namespace or manifests.NAMESPACE
    connection = connect(options)
    operators = inspection.operators(connection, namespace)
    here = next((one for one in operators if one.namespace == namespace), None)
    scope = here.scope if here else ""
    last = all(one.namespace == namespace for one in operators)
    fate = _fate(len(inspection.jobs(connection, scope)), options)
    _confirm(f"the operator of {namespace} on {connection.settings.server}; {fate}", options.yes)
    if options.delete_jobs:
        able = here is not None and here.ready > 0
        with Progress("deleting jobs") as progress:
            gone = removal.delete_jobs(
                connection,
                scope,
                options.timeout if able else 0.0,
                lambda text: setattr(progress, "text", text),
            )
            print_each(gone, options.output)
    keep = options.keep_jobs
    done = print_each(removal.remove(connection, namespace, scope, keep, last), options.output)
    if not done:
        raise NotFound(f"{namespace} has no operator; see `{messages.program()} operator status`")
    return 0


def _fate(jobs: int, options: argparse.Namespace) -> str:
    """What will become of the jobs, in words."""
    if options.keep_jobs:
        return "jobs keep training and wait for the next operator"
    if not jobs:
        return "there are no jobs"
    what = counted(jobs, "job")
    if not options.delete_jobs:
        raise Refused(
            f"{what} would be without an operator; leave them to the next one with --keep-jobs, "
            "or delete them with --delete-jobs"
        )
    return f"{what} will be deleted"


def _confirm(what: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"this removes {what}; without a terminal, confirm with --yes")
    if input(f"Remove {what}? [y/N] ").strip().lower() not in ("y", "yes"):
        raise Refused("nothing was removed")


def parser() -> flags.VerbParser:
    made = verb("uninstall", "Removes the operator from a cluster.")
    flags.switch(
        made, "--keep-jobs", help="leave jobs running; custom resource definitions stay as well"
    )
    flags.switch(
        made, "--delete-jobs", help="delete all jobs first, with everything that belongs to them"
    )
    flags.switch(made, "-y", "--yes", help="do not ask for confirmation")
    add_timeout(made, "how long to wait until the operator has cleaned up")
    return made
