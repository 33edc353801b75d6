"""A verb that has to be where the run is: on a cluster it is carried out in the launcher's pod."""

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from midflight.cli import choosing, common_flags, jobs
from midflight.kubernetes.names import RUNTIME_DIR

if TYPE_CHECKING:
    from midflight.client import Client


def carry_out(namespace: str, job: str, words: Sequence[str]) -> int | None:
    """`midflight WORDS` beside the job's coordinator; None if no cluster is meant."""
    from midflight.cli.cluster import kubernetes

    if (cluster := kubernetes()) is None:
        return None
    space = namespace or choosing.namespace(common_flags.config())
    found = jobs.check(cast("Client", cluster), space, job)
    command = (
        f'PYTHONPATH="{RUNTIME_DIR}${{PYTHONPATH:+:$PYTHONPATH}}" '
        f"exec python3 -P -m midflight.cli {shlex.join(words)}"
    )
    return cluster.attach(space, found["chiefName"], "", ["sh", "-c", command])
