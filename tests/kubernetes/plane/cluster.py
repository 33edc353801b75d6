"""A cluster as tests use it: objects by kind and name, and waiting for what should become of them.

Objects are plain dictionaries, as in a manifest. Waiting is done on watches, so it ends when the
thing happens and not a moment later; what never happens fails the test, showing the last state.
"""

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlencode

from tests.kubernetes.plane.api import MERGE, Api, Json
from tests.kubernetes.plane.control import Plane
from tests.kubernetes.plane.nodes import Nodes

Predicate = Callable[[Json], object]
_SEVERAL = {"v1": "/api/v1"}  # other versions are below /apis


class Cluster:
    def __init__(self, plane: Plane, nodes: Nodes) -> None:
        self.plane = plane
        self.nodes = nodes
        self._plurals: dict[tuple[str, str], tuple[str, bool]] = {}  # (version, kind)

    @property
    def api(self) -> Api:
        return self.plane.api

    @property
    def kubeconfig(self) -> Path:
        return self.plane.kubeconfig

    # --- objects ----------------------------------------------------------------------------------

    def create(self, manifest: Json, namespace: str = "default") -> Json:
        where = manifest["metadata"].get("namespace", namespace)
        return self.api.call("POST", self.path(_typed(manifest), where), manifest)

    def get(self, kind: str, namespace: str, name: str) -> Json | None:
        return self.api.get(self.path(kind, namespace, name))

    def list(self, kind: str, namespace: str, **query: str) -> list[Json]:
        found: list[Json] = self.api.call(
            "GET", f"{self.path(kind, namespace)}?{urlencode(query)}"
        )["items"]
        return found

    def patch(self, kind: str, namespace: str, name: str, change: Json) -> Json:
        """A merge patch."""
        return self.api.call("PATCH", self.path(kind, namespace, name), change, MERGE)

    def delete(self, kind: str, namespace: str, name: str, grace: int | None = None) -> None:
        self.api.delete(self.path(kind, namespace, name), grace)

    def log(self, namespace: str, pod: str, **query: str) -> str:
        return self.api.text(f"{self.path('Pod', namespace, pod)}/log?{urlencode(query)}")

    def path(self, kind: str, namespace: str, name: str = "") -> str:
        """`kind` is a kind, or version/kind where two groups have one of that name."""
        version, plural, namespaced = self._find(kind)
        root = _SEVERAL.get(version, f"/apis/{version}")
        where = f"/namespaces/{namespace}" if namespaced else ""
        return f"{root}{where}/{plural}" + (f"/{name}" if name else "")

    # --- waiting ----------------------------------------------------------------------------------

    def wait_for(
        self, kind: str, namespace: str, name: str, wanted: Predicate, seconds: float = 30
    ) -> Json:
        """The object, as soon as it is there and is as wanted."""
        last: Json | None = None
        for event, thing in self.api.watch(
            self.path(kind, namespace), seconds, fieldSelector=f"metadata.name={name}"
        ):
            if event == "LISTED":
                continue
            last = None if event == "DELETED" else thing
            if last is not None and wanted(last):
                return last
        raise AssertionError(f"{kind} {namespace}/{name} after {seconds:g} s: {_shown(last)}")

    def wait_gone(self, kind: str, namespace: str, name: str, seconds: float = 30) -> None:
        last: Json | None = None
        for event, thing in self.api.watch(
            self.path(kind, namespace), seconds, fieldSelector=f"metadata.name={name}"
        ):
            if event == "DELETED" or (event == "LISTED" and not thing["items"]):
                return
            last = thing
        raise AssertionError(
            f"{kind} {namespace}/{name} is still there after {seconds:g} s: {_shown(last)}"
        )

    def wait_for_all(
        self,
        kind: str,
        namespace: str,
        wanted: Callable[[Sequence[Json]], object],
        seconds: float = 30,
        **query: str,
    ) -> Sequence[Json]:
        """All objects of a kind (with `labelSelector`, say), as soon as together they are so."""
        there: dict[str, Json] = {}
        listed = False
        for event, thing in self.api.watch(self.path(kind, namespace), seconds, **query):
            if event == "LISTED":
                there = {item["metadata"]["uid"]: item for item in thing["items"]}
                listed = True
            elif event == "DELETED":
                there.pop(thing["metadata"]["uid"], None)
            else:
                there[thing["metadata"]["uid"]] = thing
            if listed and wanted(list(there.values())):
                return list(there.values())
        shown = "\n".join(_shown(item) for item in there.values())
        raise AssertionError(f"{kind} in {namespace} after {seconds:g} s: {shown or 'none'}")

    def wait_for_log(
        self, namespace: str, pod: str, wanted: str, seconds: float = 30, **query: str
    ) -> str:
        """The pod's log, followed until `wanted` is in it."""
        seen = ""
        path = f"{self.path('Pod', namespace, pod)}/log?{urlencode({'follow': 'true', **query})}"
        for piece in self.api.stream(path, seconds):
            seen += piece
            if wanted in seen:
                return seen
        raise AssertionError(f"{wanted!r} is not in the log of {namespace}/{pod}:\n{seen}")

    # --- the way of kubectl -----------------------------------------------------------------------

    def kubectl(self, *arguments: str, seconds: float = 60) -> "subprocess.CompletedProcess[str]":
        """Runs kubectl as the administrator; what it says and how it ended is the caller's."""
        assert self.plane.binaries.kubectl is not None, "there is no kubectl"
        command = [str(self.plane.binaries.kubectl), f"--kubeconfig={self.kubeconfig}", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=seconds)

    def clear(self, namespace: str, seconds: float = 20) -> None:
        """Deletes a namespace and waits for its pods to go; those that stay are an error."""
        pods = self.path("Pod", namespace)
        self.api.delete(self.path("Namespace", "", namespace))
        for pod in self.list("Pod", namespace):
            lost = pod["spec"].get("nodeName", "") not in self.nodes.names
            self.api.delete(f"{pods}/{pod['metadata']['name']}", grace=0 if lost else 1)
        self.wait_for_all("Pod", namespace, lambda left: not left, seconds)

    def _find(self, kind: str) -> tuple[str, str, bool]:
        version, _, bare = kind.rpartition("/")
        for _attempt in range(2):
            for (known, name), (plural, namespaced) in self._plurals.items():
                if name == bare and version in ("", known):
                    return known, plural, namespaced
            self._discover()
        raise AssertionError(f"the API server knows no {kind}")

    def _discover(self) -> None:
        groups = self.api.call("GET", "/apis")["groups"]
        versions = ["v1", *(v["groupVersion"] for group in groups for v in group["versions"])]
        for version in versions:
            listed = self.api.call("GET", _SEVERAL.get(version, f"/apis/{version}"))
            for resource in listed["resources"]:
                if "/" not in resource["name"]:
                    key = (version, resource["kind"])
                    self._plurals.setdefault(key, (resource["name"], resource["namespaced"]))


def phase(*wanted: str) -> Predicate:
    return lambda thing: thing.get("status", {}).get("phase") in wanted


def ready(thing: Json) -> bool:
    conditions = thing.get("status", {}).get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _typed(manifest: Json) -> str:
    return f"{manifest['apiVersion']}/{manifest['kind']}"


def _shown(thing: Json | None) -> str:
    if thing is None:
        return "not there"
    meta = {key: value for key, value in thing["metadata"].items() if key != "managedFields"}
    return json.dumps(thing | {"metadata": meta}, indent=1)[:4000]
