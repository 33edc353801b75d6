"""The names that everything on a cluster goes by: groups, labels, annotations, paths, objects.

Each stands here once; who renders an object and who looks for it must agree. What belongs to a job
is named after it, so that `kubectl get all` reads like the guides.
"""

import hashlib
import hmac

GROUP = "kai.alibabacloud.com"
VERSION = "v1alpha1"
API = f"{GROUP}/{VERSION}"
TRAININGJOB, SCALEOUT, SCALEIN = "TrainingJob", "ScaleOut", "ScaleIn"
PYTORCH_GROUP, PYTORCH_VERSION = "kubeflow.org", "v1"
PYTORCH_API = f"{PYTORCH_GROUP}/{PYTORCH_VERSION}"
PYTORCHJOB = "PyTorchJob"
JOB_KINDS = {"etjob": TRAININGJOB, "pytorchjob": PYTORCHJOB}
JOB_TYPES = {kind: name for name, kind in JOB_KINDS.items()}

# --- labels and annotations -----------------------------------------------------------------------

OURS = "midflight.dev"
MANAGER = "midflight"
PART_OF = "app.kubernetes.io/part-of"
MANAGED_BY = "app.kubernetes.io/managed-by"  # MANAGER: ours to look after
JOB = f"{OURS}/job"  # label of whatever belongs to a job: the job's name
KIND = f"{OURS}/kind"  # label of pods: etjob | pytorchjob
ROLE = f"{OURS}/role"  # label of pods: launcher | master | worker | code
INDEX = f"{OURS}/index"  # label of workers and masters
ATTEMPT = f"{OURS}/attempt"  # label of pods: which start of that instance it is
USERNAME = "arena.kubeflow.org/username"  # annotation: who submitted a job, or asked for a change
REQUEST = f"{OURS}/request"  # annotation of an Event: what somebody asked for
HOSTS = f"{OURS}/hosts"  # annotation of a launcher: changes with its hostfile, so kubelets look
RUN_IN = f"{OURS}/run-in"  # annotation of a job: auto | launcher | workers
SHELL = f"{OURS}/shell"  # annotation of a job: the shell that reads its command
SYNC = f"{OURS}/sync"  # annotation of a PyTorchJob: spec.sync of a TrainingJob, as JSON
MIN_AVAILABLE = f"{OURS}/min-available"  # annotation of a job: workers that a drain leaves
TEMPLATE = f"{OURS}/template"  # annotation of a pod: changes with the template it was made of
FINALIZER = f"{OURS}/cleanup"
KUBEFLOW = "kubeflow.org/training-operator"  # in managedBy; where we run its jobs, that is us
QUEUE = "scheduling.volcano.sh/queue-name"  # annotation of a job: Volcano's queue for its gang
SUSPEND = "scheduling.x-k8s.io/suspend"  # annotation, "true": a queue lets it go later
SUSPENDED = "job-supervisor.kube-ai.io/job-suspended"  # annotation, "true": stop all of it
SPOT = "job-supervisor.kube-ai.io/spot-instance"
MAX_WAIT = "job-supervisor.kube-ai.io/max-wait-time"  # seconds
POD_GROUP = "pod-group.scheduling.sigs.k8s.io/name"
POD_GROUP_MIN = "pod-group.scheduling.sigs.k8s.io/min-available"
SCHEDULING_GROUP, SCHEDULING_VERSION = "scheduling.x-k8s.io", "v1alpha1"
SCHEDULING_API = f"{SCHEDULING_GROUP}/{SCHEDULING_VERSION}"
PODGROUP = "PodGroup"
POD_GROUP_MEMBER = f"{SCHEDULING_GROUP}/pod-group"  # label of pods: their PodGroup's name
VOLCANO = "volcano"  # its scheduler's name
VOLCANO_GROUP, VOLCANO_VERSION = "scheduling.volcano.sh", "v1beta1"
VOLCANO_API = f"{VOLCANO_GROUP}/{VOLCANO_VERSION}"
VOLCANO_MEMBER = "scheduling.k8s.io/group-name"  # annotation of pods: their PodGroup's name
GPU = "nvidia.com/gpu"

# --- inside pods ----------------------------------------------------------------------------------

PORT = 47100  # where a job's coordinator listens
MASTER_PORT = 23456  # of a PyTorchJob of fixed size
EDL = "/etc/edl"  # hostfile and discover_hosts.sh, as the guides have them
TOKEN_DIR = "/etc/midflight"
TOKEN_FILE = f"{TOKEN_DIR}/token"
JOB_DIR = "/var/run/midflight"  # a pod's own, gone with it
RUNTIME_DIR = "/opt/midflight"  # where midflight is put for images that lack it
CODE_DIR = "/code"
UNUSABLE, UNUSABLE_IMAGE = 78, "midflight: this image"  # exit code, and how its last line begins
CODE_CONTAINER = "midflight-code"  # fetches the code of a pod, or finds out its commit
NO_SUCH_COMMIT = 66  # exit code where the source has no branch, tag or commit of that name

# --- a job's own objects --------------------------------------------------------------------------


def pod_group(kind: str, job: str) -> str:
    """`kind`: etjob or pytorchjob."""
    return f"{kind}-{job}"


def launcher_service(job: str) -> str:
    return f"{job}-launcher"


def master_service(job: str) -> str:
    return f"{job}-master-0"


def first_worker_service(job: str) -> str:
    return f"{job}-worker-0"


def token_secret(job: str, uid: str, key: bytes) -> str:
    """`key`: the operator's. Nobody else can know the name, and so make one of it, before it does:
    the operator may not read Secrets, and would take that one for the job's.
    """
    mark = hmac.new(key, f"token of {uid}".encode(), hashlib.sha256).hexdigest()
    return f"{job}-token-{mark[:16]}"


def config_map(job: str) -> str:
    """Holds the hostfile and the discovery script."""
    return f"{job}-config"


def state_map(job: str) -> str:
    """Where the job's coordinator keeps its state, for the next launcher to find."""
    return f"{job}-state"


def logs_map(job: str) -> str:
    """Holds the ends of the logs of pods that failed."""
    return f"{job}-logs"


def service_account(job: str) -> str:
    """Of the launcher; its role lets it read and write the state, and nothing else."""
    return f"{job}-launcher"


def git_secret(job: str) -> str:
    return f"{job}-git"


def code_pod(job: str) -> str:
    """Finds out which commit a job's code is at, once for all of its pods."""
    return f"{job}-code"
