"""How jobs, their instances and their events are shown, by every verb that shows them."""

from collections.abc import Iterable, Mapping

from midflight import durations
from midflight.cli import output, screen
from midflight.cli.output import fields, table
from midflight.flight import amounts
from midflight.printable import printable
from midflight.protocol.cluster_api import ClusterApi
from midflight.protocol.views import EventView, GpuView, InstanceView, JobView

ENDED = ("SUCCEEDED", "FAILED")
HOLDING = ("PENDING", "RUNNING", "SCALING")  # in these a job may hold GPUs
Usage = Mapping[tuple[str, int], GpuView]  # by node and index
_GIB = 1 << 30
_VALUES = 13  # the column in which Arena begins the values of a job
_CLASSIC = ("NAME", "STATUS", "TRAINER", "AGE", "INSTANCE", "NODE")
_PHASES = {"Completed": "SUCCEEDED", "Error": "FAILED"}  # of a pod, as they were shown then


def head(job: JobView) -> str:
    """The lines of guide 2, and no other."""
    values: dict[str, object] = {
        "Name": job["name"],
        "Status": job["status"],
        "Namespace": job["namespace"],
        "Priority": job["priority"] or "N/A",
        "Trainer": job["trainer"],
        "Duration": durations.shown(job["duration"]),
    }
    return fields(values, _VALUES)


def more(client: ClusterApi, job: JobView) -> str:
    """What the guides do not show: it comes after what they do."""
    values: dict[str, object] = {
        "Workers": _workers(job),
        "CreateTime": output.local(job["createTime"]),
    }
    if job["endTime"]:
        values["EndTime"] = output.local(job["endTime"])
    if job["commit"]:
        values["Commit"] = job["commit"]
    if job["reason"]:
        values["Reason"] = job["reason"]
    if line := training_line(client, job):
        values["Training"] = line
    return fields(values, _VALUES)


def training_line(client: ClusterApi, job: JobView) -> str:
    """How far the job's training is and how fast; "" if nobody says: on a cluster nobody can."""
    asks = job["folder"] and job["status"] in ("RUNNING", "SCALING")
    training = client.training(job["namespace"], job["name"]) if asks else None
    if not training or not training["step"]:
        return ""
    parts = [f"step {training['step']:,}"]
    if training["stepsPerSecond"]:
        parts.append(amounts.speed(training["stepsPerSecond"], training["samplesPerSecond"]))
    if training["logged"]:
        parts.append(amounts.values(training["logged"]))
    return printable(", ".join(parts))


def classic(job: JobView) -> str:
    """As older releases of Arena show a job, and the guides of that time."""
    shown = {
        "STATUS": screen.paint(job["status"]),
        "NAMESPACE": job["namespace"],
        "PRIORITY": job["priority"] or "N/A",
        "TRAINING DURATION": durations.shown(job["duration"]),
    }
    rows = [
        (job["name"], _phase(each), job["trainer"], _age(each), each["name"], each["nodeIP"])
        for each in job["instances"]
    ]
    lines = [f"{name}: {value}" for name, value in shown.items()]
    return "\n".join([*lines, "", table(_CLASSIC, rows, whole=True)])


def _phase(each: InstanceView) -> str:
    return _PHASES.get(each["status"], each["status"].upper())


def _age(each: InstanceView) -> str:
    return durations.shown(each["age"])


def _workers(job: JobView) -> str:
    if job["minWorkers"] == job["maxWorkers"]:
        return str(job["workers"])
    return f"{job['workers']} ({job['minWorkers']} to {job['maxWorkers']})"


def event_row(each: EventView) -> tuple[object, ...]:
    message = f"[{each['reason']}] {each['message']}"
    return each["source"], each["kind"], output.age(each["time"]), message


def gpu_row(each: InstanceView, busy: Usage) -> tuple[object, ...]:
    devices = ",".join(map(str, each["devices"])) or "N/A"
    used = (_duty(each, busy), _memory(each, busy))
    return each["name"], each["nodeIP"], each["requestGPUs"], devices, *used


def gpu_sum(job: JobView) -> str:
    return f"Allocated/Requested GPUs of Job: {job['allocatedGPUs']}/{job['requestGPUs']}"


# --- how busy devices are -------------------------------------------------------------------------


def gpu_usage(client: ClusterApi, instances: Iterable[InstanceView]) -> Usage:
    """Of the nodes on which instances hold devices; what is not known is left out."""
    nodes = sorted({each["node"] for each in instances if each["devices"]})
    return {(node, gpu["index"]): gpu for node in nodes for gpu in client.gpus(node)}


def _duty(each: InstanceView, found: Usage) -> str:
    """In percent, one for each device."""
    gpus = _of(each, found)
    return ",".join(f"{gpu['dutyCycle']}%" for gpu in gpus) or "N/A"


def _memory(each: InstanceView, found: Usage) -> str:
    """Used and total of all its devices together."""
    gpus = _of(each, found)
    if not gpus:
        return "N/A"
    used, total = (sum(gpu[key] for gpu in gpus) for key in ("memoryUsed", "memoryTotal"))
    return f"{used / _GIB:.1f}GiB/{total / _GIB:.1f}GiB"


def _of(each: InstanceView, found: Usage) -> list[GpuView]:
    places = [(each["node"], index) for index in each["devices"]]
    return [found[place] for place in places if place in found]
