"""Jobs for the operator: as manifests that users would write, and what is seen of them.

`idle` jobs hold no training: their launcher sleeps, their agents wait, and a resize is agreed to at
once, so that what the operator does is seen in a second. `counting` jobs train for real, with
weights that count how often each sample was used (see tests/e2e/counting.py).
"""

import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from midflight.cli.audits import read_ledgers
from midflight.runtime.data.audit import judge
from tests.e2e.runs import COUNTING
from tests.kubernetes.plane.api import MERGE, Json
from tests.kubernetes.plane.cluster import Cluster, phase

JOB = "TrainingJob"
API = "kai.alibabacloud.com/v1alpha1"
OUT = "/out"  # in pods: the test's own folder
SECONDS = 60.0
SLEEP = "trap 'exit 0' TERM; sleep 3600 & wait"  # a first process heeds nothing unasked


class Jobs:
    def __init__(self, cluster: Cluster, namespace: str, folder: Path) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.out = folder / "out"
        self.out.mkdir()
        self.last_epoch = sys.maxsize

    # --- making -----------------------------------------------------------------------------

    def manifest(self, name: str, command: str, workers: int = 2, **more: Any) -> Json:
        """`least`, `most`, `gpus` and `image`, and fields of the spec itself."""
        image = more.pop("image", "train")
        least, most, gpus = more.pop("least", 1), more.pop("most", 4), more.pop("gpus", 1)
        worker = {"name": "et", "image": image, "resources": {"limits": {"nvidia.com/gpu": gpus}}}
        chief = {"name": "et", "image": image, "command": ["sh", "-c", command]}
        for container in (worker, chief):
            container["volumeMounts"] = [{"name": "out", "mountPath": OUT}]
        volumes = [{"name": "out", "hostPath": {"path": str(self.out)}}]
        return {
            "apiVersion": API,
            "kind": JOB,
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "etReplicaSpecs": {
                    "launcher": {
                        "replicas": 1,
                        "template": {"spec": {"containers": [chief], "volumes": volumes}},
                    },
                    "worker": {
                        "replicas": workers,
                        "minReplicas": least,
                        "maxReplicas": most,
                        "template": {"spec": {"containers": [worker], "volumes": volumes}},
                    },
                },
                **more,
            },
        }

    def idle(self, name: str = "idle", workers: int = 2, **more: Any) -> Json:
        return self.create(quick(self.manifest(name, SLEEP, workers, runIn="launcher", **more)))

    def counting(
        self, name: str = "count", workers: int = 2, epochs: int = 10, **more: Any
    ) -> Json:
        """`apart`: each worker on a node of its own."""
        apart = more.pop("apart", False)
        words = [sys.executable, str(COUNTING), "--out", OUT, "--epochs", str(epochs)]
        words += ["--samples", "97", "--pace", "0.05"]
        command = f"midflight run -np {workers} --min-np 1 --max-np 4 -- {' '.join(words)}"
        made = self.manifest(name, command, workers, **more)
        parts = made["spec"]["etReplicaSpecs"]
        if apart:
            parts["worker"]["template"]["spec"]["affinity"] = _apart(name)
        chief = parts["launcher"]["template"]["spec"]["containers"][0]
        ledgers = {"name": "MIDFLIGHT_LEDGER_DIR", "value": f"{OUT}/ledgers"}
        chief["env"] = [*chief.get("env", ()), ledgers]
        return self.create(made)

    def create(self, manifest: Json) -> Json:
        return self.cluster.create(manifest)

    def scale_out(self, job: str, name: str, count: int = 1, **more: Any) -> Json:
        return self._scale("ScaleOut", job, name, {"toAdd": {"count": count}, **more})

    def scale_in(self, job: str, name: str, **more: Any) -> Json:
        """`count` or `pods`."""
        request: Json = {"count": more.pop("count")} if "count" in more else {}
        if "pods" in more:
            request["podNames"] = more.pop("pods")
        return self._scale("ScaleIn", job, name, {"toDelete": request, **more})

    def _scale(self, kind: str, job: str, name: str, spec: Json) -> Json:
        meta = {"name": name, "namespace": self.namespace}
        body = {"selector": {"name": job}, "timeout": 60, **spec}
        return self.create({"apiVersion": API, "kind": kind, "metadata": meta, "spec": body})

    def set_replicas(self, job: str, count: int) -> Json:
        """As `kubectl scale` does it."""
        path = f"{self.cluster.path(JOB, self.namespace, job)}/scale"
        return self.cluster.api.call("PATCH", path, {"spec": {"replicas": count}}, MERGE)

    # --- looking ----------------------------------------------------------------------------

    def get(self, name: str) -> Json:
        found = self.cluster.get(JOB, self.namespace, name)
        assert found is not None
        return found

    def wait_for(
        self, name: str, wanted: Callable[[Json], object], seconds: float = SECONDS
    ) -> Json:
        return self.cluster.wait_for(JOB, self.namespace, name, wanted, seconds)

    def wait_phase(self, name: str, *phases: str, seconds: float = SECONDS) -> Json:
        return self.wait_for(name, phase(*phases), seconds)

    def wait_workers(self, name: str, count: int, seconds: float = SECONDS) -> Json:
        """So many run, and nothing is under way."""
        return self.wait_for(name, lambda job: _settled(job, count), seconds)

    def wait_scaled(self, kind: str, name: str, seconds: float = SECONDS) -> Json:
        """A scale object that is over."""
        wanted = phase("ScaleSucceeded", "ScaleFailed")
        return self.cluster.wait_for(kind, self.namespace, name, wanted, seconds)

    def check_scaled(self, kind: str, name: str) -> None:
        """It has come to a good end."""
        try:
            scaler = self.wait_scaled(kind, name, SECONDS + 30)  # the request's own end comes first
        except AssertionError as never:
            raise AssertionError(f"{never}\n{self.told()}") from None
        status = scaler["status"]
        assert status["phase"] == "ScaleSucceeded", f"{status['conditions']}\n{self.told()}"

    def wait_events(self, wanted: Callable[[list[Json]], object], seconds: float = SECONDS) -> None:
        self.cluster.wait_for_all("v1/Event", self.namespace, wanted, seconds)

    def pods(self) -> dict[str, Json]:
        found = self.cluster.list("Pod", self.namespace)
        return {pod["metadata"]["name"]: pod for pod in found}

    def pod(self, name: str) -> Json:
        found = self.cluster.get("Pod", self.namespace, name)
        assert found is not None
        return found

    def hostfile(self, job: str) -> str:
        found = self.cluster.get("ConfigMap", self.namespace, f"{job}-config")
        assert found is not None
        return str(found["data"]["hostfile"])

    def delete_pod(self, name: str, grace: int | None = None) -> None:
        self.cluster.delete("Pod", self.namespace, name, grace)

    def told(self) -> str:
        """What the cluster has to say, where the training says nothing."""
        parts = []
        for job in self.cluster.list(JOB, self.namespace):
            conditions = job.get("status", {}).get("conditions")
            parts.append(f"{job['metadata']['name']}: {conditions}")
        for name, pod in self.pods().items():
            parts.append(f"{name}: {pod.get('status', {}).get('phase')}")
            with contextlib.suppress(Exception):  # there may be no log, and nobody to ask for it
                parts.append(self.cluster.log(self.namespace, name, tailLines="60"))
        logs = self.cluster.plane.folder.glob("operator-*.log")
        newest = sorted(logs, key=lambda log: log.stat().st_mtime)[-1:]
        parts += [log.read_text()[-3000:] for log in newest]
        return "\n".join(parts)

    # --- training ---------------------------------------------------------------------------

    def wait_training(
        self, job: str, words: str = "training with", seconds: float = SECONDS
    ) -> str:
        """The launcher's log, once `words` are in it."""
        chief = f"{job}-launcher"
        running = phase("Running", "Succeeded", "Failed")
        self.cluster.wait_for("Pod", self.namespace, chief, running, seconds)
        return self.cluster.wait_for_log(self.namespace, chief, words, seconds)

    def hurry(self) -> None:
        """Let a counting job go on as fast as it can, and end a whole epoch from now."""
        records = [each for folder in self._ledgers() for each in read_ledgers(folder).records]
        self.last_epoch = max((record.epoch for record in records), default=0) + 2
        beside = self.out / "hurry.new"
        beside.write_text(str(self.last_epoch))
        beside.rename(self.out / "hurry")

    def _ledgers(self) -> list[Path]:
        """The folder of each run."""
        return sorted((self.out / "ledgers").iterdir())

    def results(self) -> list[Json]:
        """What each member that came to the end has found."""
        return [json.loads(path.read_text()) for path in sorted(self.out.glob("*.json"))]

    def check_every_sample_once(self, epochs: int) -> None:
        """As many epochs as it has, or as were left to it in a hurry."""
        found = self.results()
        assert found
        epochs = min(epochs, self.last_epoch)
        assert {(each["least"], each["most"]) for each in found} == {(epochs, epochs)}
        for folder in self._ledgers():
            ledgers = read_ledgers(folder)
            report = judge(ledgers.records)
            assert report.ok and not ledgers.damage, (report, ledgers.damage)
            assert len(report.epochs) == epochs

    def clear(self) -> None:
        """Jobs go in good order, so that the namespace can."""
        for kind in (JOB, "PyTorchJob"):
            for job in self.cluster.list(kind, self.namespace):
                self.cluster.delete(kind, self.namespace, job["metadata"]["name"])
        for kind in (JOB, "PyTorchJob"):
            self.cluster.wait_for_all(kind, self.namespace, lambda left: not left, SECONDS)


def quick(manifest: Json) -> Json:
    """Its pods end at once, or are killed soon: whoever is just starting hears no signal."""
    spec = manifest["spec"]
    for part in (spec.get("etReplicaSpecs") or spec["pytorchReplicaSpecs"]).values():
        part["template"]["spec"]["terminationGracePeriodSeconds"] = 1
    return manifest


def condition(thing: Json, kind: str) -> Json:
    for each in thing.get("status", {}).get("conditions") or []:
        if each["type"] == kind:
            return dict(each)
    return {}


def _apart(job: str) -> Json:
    selector = {"matchLabels": {"midflight.dev/job": job, "midflight.dev/role": "worker"}}
    term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _settled(job: Json, count: int) -> bool:
    status = job.get("status") or {}
    running = len(status.get("currentWorkers") or [])
    return status.get("phase") == "Running" and running == count == status.get("replicas")
