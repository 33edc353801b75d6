"""Whom the verbs ask: the server on this machine, or a cluster, as was chosen.

Both satisfy `ClusterApi`, so most verbs do not know which it is.
"""

import os
from typing import TYPE_CHECKING

from midflight.cli import common_flags, contexts
from midflight.home import home

if TYPE_CHECKING:
    from midflight.kubernetes.client import KubernetesClient
    from midflight.protocol.cluster_api import ClusterApi


def connect() -> "ClusterApi":
    """The server of this user, started if there is none; or the cluster."""
    if (cluster := kubernetes()) is not None:
        return cluster
    from midflight.server.startup import ensure

    return ensure(home(os.environ))


def connect_if_running() -> "ClusterApi | None":
    if (cluster := kubernetes()) is not None:
        return cluster
    from midflight.server.startup import running

    return running(home(os.environ))


def is_kubernetes() -> bool:
    return not contexts.current(common_flags.config()).is_local


def kubernetes() -> "KubernetesClient | None":
    """None if this machine was chosen."""
    return cluster_of(contexts.current(common_flags.config()))


def cluster_of(chosen: contexts.Chosen) -> "KubernetesClient | None":
    if chosen.is_local:
        return None
    from midflight.kubernetes.api.connection import open_connection
    from midflight.kubernetes.client import KubernetesClient

    return KubernetesClient(open_connection(contexts.settings(chosen), chosen.namespace))
