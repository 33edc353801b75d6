"""Whom the verbs ask: the server on this machine, or a cluster, as was chosen.

Both have the same methods and give the same answers, so most verbs do not know which it is.
"""

import os
from typing import TYPE_CHECKING, cast

from midflight.cli import choosing, common_flags
from midflight.home import home

if TYPE_CHECKING:
    from midflight.client import Client
    from midflight.kubernetes.client import KubernetesClient


def connect() -> "Client":
    """The server of this user, started if there is none; or the cluster."""
    if (cluster := kubernetes()) is not None:
        return cast("Client", cluster)
    from midflight.server.starting import ensure

    return ensure(home(os.environ))


def connect_if_running() -> "Client | None":
    if (cluster := kubernetes()) is not None:
        return cast("Client", cluster)
    from midflight.server.starting import running

    return running(home(os.environ))


def is_kubernetes() -> bool:
    return not choosing.now(common_flags.config()).is_local


def kubernetes() -> "KubernetesClient | None":
    """None if this machine was chosen."""
    chosen = choosing.now(common_flags.config())
    if chosen.is_local:
        return None
    from midflight.kubernetes.api.connection import open_connection
    from midflight.kubernetes.client import KubernetesClient

    return KubernetesClient(open_connection(choosing.settings(chosen), chosen.namespace))
