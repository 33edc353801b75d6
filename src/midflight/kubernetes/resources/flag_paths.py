"""Where what a flag says stands in an object, so that one check serves both ways of saying it.

`controller.checking` speaks of flags; whoever wrote a manifest never saw one.
"""

import re

from midflight.controller.spec import Kind
from midflight.kubernetes import names
from midflight.kubernetes.resources.templates import PYTORCH_WORKER, WORKER

_FLAG = re.compile(r"--[a-zA-Z-]*[a-zA-Z]|cleanTaskPolicy")


def in_terms_of_fields(message: str, kind: Kind) -> str:
    return _FLAG.sub(lambda flag: _PATHS[kind].get(flag[0], flag[0]), message)


_SHARED_PATHS = {
    "--name": "metadata.name",
    "--label": "metadata.labels",
    "--run-in": f'metadata.annotations["{names.RUN_IN}"]',
    "--max-wait-time": f'metadata.annotations["{names.MAX_WAIT}"]',
    "--syncSource": f'metadata.annotations["{names.SYNC}"].source',
    "--sync-mode": f'metadata.annotations["{names.SYNC}"].mode',
    "--env": "env of the first container",
}
_PATHS = {
    Kind.ETJOB: _SHARED_PATHS
    | {
        "--workers": f"{WORKER}.replicas",
        "--min-workers": f"{WORKER}.minReplicas",
        "--max-workers": f"{WORKER}.maxReplicas",
        "--worker-restart-policy": f"{WORKER}.restartPolicy",
        "--gpus": "spec.slotsPerWorker",
        "--job-restart-policy": "spec.restartPolicy",
        "--job-backoff-limit": "spec.backoffLimit",
        "cleanTaskPolicy": "spec.cleanPodPolicy",
        "--running-timeout": "spec.activeDeadlineSeconds",
        "--ttl-after-finished": "spec.ttlSecondsAfterFinished",
        "--max-wait-time": "spec.maxWaitSeconds",
        "--run-in": "spec.runIn",
        "--syncSource": "spec.sync.source",
        "--sync-mode": "spec.sync.mode",
    },
    Kind.PYTORCHJOB: _SHARED_PATHS
    | {
        "--workers": "spec.pytorchReplicaSpecs",
        "--min-workers": "spec.elasticPolicy.minReplicas",
        "--max-workers": "spec.elasticPolicy.maxReplicas",
        "--worker-restart-policy": f"{PYTORCH_WORKER}.restartPolicy",
        "--nproc-per-node": "spec.nprocPerNode",
        "--retry": "spec.runPolicy.backoffLimit",
        "cleanTaskPolicy": "spec.runPolicy.cleanPodPolicy",
        "--running-timeout": "spec.runPolicy.activeDeadlineSeconds",
        "--ttl-after-finished": "spec.runPolicy.ttlSecondsAfterFinished",
    },
}
