"""`midflight attach JOB [-- COMMAND...]`: a command, or a shell, where the job's processes are.

On this machine it runs in the job's working directory, with the job's variables and programs; on a
cluster in the instance's pod, with this terminal. The exit code is the command's own.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn, cast

from midflight.cli import flags, jobs
from midflight.client import Client
from midflight.errors import JobFailed, UsageError
from midflight.protocol.views import JobView


def main(argv: Sequence[str]) -> int:
    from midflight.cli.cluster import connect, kubernetes

    options = parser().read(argv)
    cluster = kubernetes()
    client = cast(Client, cluster) if cluster is not None else connect()
    job = jobs.find(client, options.namespace, options.job, options.type)
    name = options.instance or job["chiefName"]
    if options.instance:
        jobs.instance(job, options.instance)
    command = [*options.command, *options.rest]
    if cluster is not None:
        return cluster.attach(options.namespace, name, options.container, command)
    _become(job, name, command or [os.environ.get("SHELL") or "/bin/sh"])


def _become(job: JobView, name: str, command: list[str]) -> NoReturn:
    environment = variables(job, name, os.environ)
    try:
        os.chdir(_folder(job))
        os.execvpe(command[0], command, environment)
    except FileNotFoundError:
        raise UsageError(f"cannot run {command[0]!r}: there is no such program") from None
    except OSError as error:
        raise JobFailed(f"cannot run {command[0]!r}: {error.strerror}") from None


def variables(job: JobView, instance: str, own: Mapping[str, str]) -> dict[str, str]:
    """As the job's own processes have them, as far as they can be told from outside."""
    spec = job["spec"]
    found = {**own, **spec.get("environment", {}), **spec.get("env", {})}
    path = found.get("PATH", os.defpath)
    nodes = {each["name"]: each["node"] for each in job["instances"]}
    return {
        **found,
        "PATH": f"{job['folder']}/bin{os.pathsep}{path}",
        "MIDFLIGHT_JOB": job["name"],
        "MIDFLIGHT_NAMESPACE": job["namespace"],
        "MIDFLIGHT_INSTANCE": instance,
        "MIDFLIGHT_NODE": nodes.get(instance, ""),
        "MIDFLIGHT_JOB_DIR": job["folder"],
        "MIDFLIGHT_HOSTFILE": f"{job['folder']}/edl/hostfile",
    }


def _folder(job: JobView) -> str:
    working = str(job["spec"].get("working_dir", ""))
    return working if working and Path(working).is_dir() else job["folder"]


def parser() -> flags.VerbParser:
    made = flags.VerbParser("attach", "Runs a command where the processes of a job are.")
    made.add_argument("job", metavar="JOB", help="its name")
    made.add_argument(
        "command", metavar="COMMAND", nargs="*", help="with its own flags after -- (your shell)"
    )
    made.add_argument("-i", "--instance", default="", metavar="NAME", help="(default: the chief)")
    made.add_argument(
        "-c", "--container", default="", metavar="NAME", help="of its pod, on a cluster"
    )
    jobs.add_type(made)
    return made
