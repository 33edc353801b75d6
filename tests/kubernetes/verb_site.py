"""A namespace, and somebody who types verbs there, where no operator runs.

What an operator would do is done by hand: `state` writes what the controller would have saved of a
job, `pod` makes one of a job's pods.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from midflight.controller.state import Instance, Job, Phase, Role, Stage
from midflight.kubernetes import names
from midflight.kubernetes.api.connection import Connection
from midflight.kubernetes.api.paths import path
from midflight.kubernetes.client import KubernetesClient
from midflight.kubernetes.resources import status, summary
from midflight.kubernetes.resources.job_spec import spec_of
from tests.kubernetes.plane.api import MERGE, Api, Json

PATIENCE = 60.0  # seconds for what happens at once, on a machine that is busy
SUBMIT = ("submit", "etjob", "--image=example/train:1", "--min-workers=1", "--max-workers=4")


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.out.splitlines()]


@dataclass(frozen=True)
class Site:
    api: Api
    kubeconfig: Path
    namespace: str
    connection: Connection
    _run: Callable[[list[str]], Said]

    @property
    def client(self) -> KubernetesClient:
        return KubernetesClient(self.connection)

    def types(self, *words: str, config: Path | None = None, code: int | None = 0) -> Said:
        """A verb of the command line, in this namespace."""
        said = self._run(["--config", str(config or self.kubeconfig), "-n", self.namespace, *words])
        assert code is None or said.code == code, said
        return said

    def submit(self, name: str, *words: str, workers: int = 2) -> Said:
        return self.types(*SUBMIT, f"--name={name}", f"--workers={workers}", *words, "train")

    # --- what an operator would do ----------------------------------------------------------------

    def get(self, kind: str, name: str) -> Json | None:
        return self.api.get(path(kind, self.namespace, name))

    def state(self, name: str, **changes: Any) -> Job:
        """Write what the controller would have saved; of a job that runs, unless it is said."""
        obj = self.api.call("GET", path(names.TRAININGJOB, self.namespace, name))
        job = status.read(obj, spec_of(obj)).job
        now = time.time()
        if not job.instances and "instances" not in changes:
            changes["instances"] = instances(name, job.wanted, now)
        usual = {"phase": Phase.RUNNING, "started_at": now}
        changed = replace(job, **{**usual, **changes})
        saved = status.Saved(changed, 1, changed.wanted)
        chief = self.api.get(path("Pod", self.namespace, f"{name}-launcher")) or {}
        found = summary.of_job(obj, changed, (chief.get("status") or {}).get("hostIP") or "")
        body = {"status": status.write(saved, obj.get("status") or {}, now, found)}
        where = path(names.TRAININGJOB, self.namespace, name, "status")
        self.api.call("PATCH", where, body, MERGE)
        return changed

    def pod(self, job: str, role: str, script: str = "sleep 100", **spec: Any) -> str:
        """A pod of the job; `role` is launcher, or worker-N. Its name."""
        name = f"{job}-{role}"
        word, _, index = role.partition("-")
        labels = {names.JOB: job, names.ROLE: word, names.ATTEMPT: "1", names.INDEX: index or "0"}
        container = {"name": "et", "image": "example", "command": ["sh", "-c", script]}
        if gpus := spec.pop("gpus", 0):
            container["resources"] = {"limits": {names.GPU: str(gpus)}}
        usual = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1}
        manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels},
            "spec": {"containers": [container], **usual, **spec},
        }
        self._await_account()
        self.api.call("POST", path("Pod", self.namespace), manifest)
        return name

    def pod_is(self, name: str, phase: str) -> Json:
        """The pod, once it is in that phase."""
        selected = {"fieldSelector": f"metadata.name={name}"}
        for _, found in self.api.watch(path("Pod", self.namespace), PATIENCE, **selected):
            if (found.get("status") or {}).get("phase") == phase:
                return found
        raise AssertionError(f"{name} was not {phase} within {PATIENCE:g} s")

    def _await_account(self) -> None:
        """Without it no pod can be made; it comes a moment after its namespace."""
        for event, found in self.api.watch(path("ServiceAccount", self.namespace), PATIENCE):
            if event != "LISTED" and found.get("secrets"):
                return
        raise AssertionError(f"{self.namespace} has no service account")


def instances(name: str, workers: int, now: float) -> dict[str, Instance]:
    usual: dict[str, Any] = {"created_at": now, "stage": Stage.RUNNING, "attempt": 1}
    chief = Instance(f"{name}-launcher", Role.LAUNCHER, 0, 0, node="node-0", **usual)
    others = [
        Instance(f"{name}-worker-{i}", Role.WORKER, i, 0, node="node-1", **usual)
        for i in range(workers)
    ]
    return {each.name: each for each in (chief, *others)}
