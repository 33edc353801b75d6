"""Finding a job for the verbs that speak of one, and saying so when it is not there."""

import argparse

from midflight.arguments import offer
from midflight.cli import job_types, messages
from midflight.errors import NotFound
from midflight.protocol.cluster_api import ClusterApi
from midflight.protocol.views import InstanceView, JobView


def add_type(parser: argparse.ArgumentParser) -> None:
    action = parser.add_argument(
        "-T",
        "--type",
        type=job_types.canonical,
        default="",
        metavar="TYPE",
        help="type of the job: etjob or pytorchjob",
    )
    offer(action, job_types.HERE)


def find(client: ClusterApi, namespace: str, name: str, kind: str = "") -> JobView:
    """NotFound, in the words users know, also if it is of another type."""
    try:
        job = client.job(namespace, name)
    except NotFound:
        raise NotFound(missing(namespace, name)) from None
    if kind and job["type"] != kind:
        raise NotFound(missing(namespace, name))
    return job


def check(client: ClusterApi, namespace: str, name: str, kind: str = "") -> JobView:
    """As `find`, in the words of the verbs that work on a job that runs."""
    try:
        return find(client, namespace, name, kind)
    except NotFound:
        raise NotFound(
            f"training job not found,please use '{messages.program()} list' "
            "to make sure job is existed"
        ) from None


def missing(namespace: str, name: str) -> str:
    return (
        f"Not found training job {name} in namespace {namespace},"
        f"please use '{messages.program()} submit' to create it."
    )


def instance(job: JobView, name: str) -> InstanceView:
    for found in job["instances"]:
        if found["name"] == name:
            return found
    raise NotFound(invalid_instance(job["name"], name))


def invalid_instance(job: str, name: str) -> str:
    return (
        f"invalid instance name {name} in job {job},"
        f"please use '{messages.program()} get {job}' to make sure instance name"
    )
