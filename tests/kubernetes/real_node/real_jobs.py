"""Jobs for a node with real containers: the same ones, in an image that holds next to nothing.

Python, torch and Midflight come from folders of this machine, mounted read-only.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2
from lightkube import Client, KubeConfig

from tests.kubernetes.plane import real_image
from tests.kubernetes.plane.api import Json
from tests.kubernetes.plane.cluster import Cluster
from tests.kubernetes.plane.real_plan import TAINT
from tests.kubernetes.running.jobs import JOB, Jobs

# The plane's certificate knows the API server by this name, and not by the Service's address.
_SERVER = {"name": "KUBERNETES_SERVICE_HOST", "value": "kubernetes.default.svc"}


class RealJobs(Jobs):
    def __init__(self, cluster: Cluster, namespace: str, folder: Path) -> None:
        super().__init__(cluster, namespace, folder)
        self.out.chmod(0o777)  # for a user that this machine does not know

    def manifest(self, name: str, command: str, workers: int = 2, **more: Any) -> Json:
        made = super().manifest(name, command, workers, image=real_image.NAME, **more)
        for part in made["spec"]["etReplicaSpecs"].values():
            self._adapt(part["template"]["spec"])
        return made

    def _adapt(self, pod: Json) -> None:
        container = pod["containers"][0]
        container["resources"] = {"limits": {"memory": "2Gi"}, "requests": {"memory": "64Mi"}}
        container["env"] = [_SERVER]
        container["volumeMounts"] = list(container["volumeMounts"])
        pod["volumes"] = list(pod["volumes"])
        for number, path in enumerate(real_image.mounts()):
            volume = f"machine-{number}"
            pod["volumes"].append({"name": volume, "hostPath": {"path": path}})
            mount = {"name": volume, "mountPath": path, "readOnly": True}
            container["volumeMounts"].append(mount)
        (node,) = self.cluster.nodes.names
        pod["nodeSelector"] = {"kubernetes.io/hostname": node}
        pod["tolerations"] = [{"key": TAINT, "operator": "Exists"}]

    def run(self, pod: str, *command: str) -> tuple[str, str, int]:
        """What a program in a pod writes and complains of, and how it ends. It only looks.

        Of hundreds of such calls, each on a connection of its own, one broke because the API
        server's answer could not be decrypted. So one that breaks before an answer is made again.
        """
        try:
            ran = self._exec(pod, command)
        except httpx2.ReadError:
            ran = self._exec(pod, command)
        return ran.stdout, ran.stderr, ran.exit_code

    def _exec(self, pod: str, command: Sequence[str]) -> Any:
        with Client(KubeConfig.from_file(self.cluster.kubeconfig)) as client:
            return client.exec(
                pod, namespace=self.namespace, command=list(command), stdout=True, stderr=True
            )

    def clear(self) -> None:
        """At once: of a pod's good end a kubelet of this age tells every ten seconds only."""
        for job in self.cluster.list(JOB, self.namespace):
            self.cluster.delete(JOB, self.namespace, job["metadata"]["name"])
        for pod in self.pods():
            self.delete_pod(pod, grace=0)
        super().clear()
