"""ConfigMaps of the tests' own on the shared cluster, and who may do what with them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.kubernetes.plane.api import ApiError
from tests.kubernetes.plane.control import Plane

NAMESPACE = "stores"
LAUNCHER = ("get", "update", "watch")  # what a job's launcher may do
_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
_RBAC = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"


def make_config_map(plane: Plane, **metadata: Any) -> str:
    """The URL of a store in a new one."""
    _make_namespace(plane)
    name = f"store-{uuid4().hex[:12]}"
    plane.api.call("POST", _MAPS, {"metadata": {"name": name, **metadata}})
    return url_of(name, plane.kubeconfig)


def _make_namespace(plane: Plane) -> None:
    try:
        plane.api.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    except ApiError as error:
        if error.status != 409:  # it is there already
            raise


def url_of(name: str, kubeconfig: Path) -> str:
    return f"kubernetes://{NAMESPACE}/{name}?kubeconfig={kubeconfig}"


def name_in(url: str) -> str:
    return url.partition("?")[0].rpartition("/")[2]


def read_config_map(plane: Plane, url: str) -> dict[str, Any]:
    return plane.api.call("GET", f"{_MAPS}/{name_in(url)}")


def delete_config_map(plane: Plane, url: str) -> None:
    plane.api.delete(f"{_MAPS}/{name_in(url)}")


def as_somebody(plane: Plane, url: str, verbs: Sequence[str]) -> str:
    """The same store, as a user who may do no more than this with this one ConfigMap."""
    user = f"user-{uuid4().hex[:12]}"
    rule = {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": [name_in(url)],
        "verbs": list(verbs),
    }
    group = "rbac.authorization.k8s.io"
    plane.api.call("POST", f"{_RBAC}/roles", {"metadata": {"name": user}, "rules": [rule]})
    binding = {
        "metadata": {"name": user},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": user},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
    plane.api.call("POST", f"{_RBAC}/rolebindings", binding)
    return url_of(name_in(url), plane.kubeconfig_for_user(user))


def with_server(plane: Plane, url: str, server: str, folder: Path, token: str | None = None) -> str:
    """The same store, with the API server somewhere else, or another token for it."""
    config = json.loads(plane.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = server
    if token is not None:
        config["users"][0]["user"] = {"token": token}
    path = folder / f"{uuid4().hex}.json"
    path.write_text(json.dumps(config))
    return url_of(name_in(url), path)
