"""From a call's arguments to a spec, with the defaults of the command line; and its errors.

The arguments of a job are the fields of a job file. What is wrong with them is found by the same
checks, whose words speak of flags: `in_arguments` says the same of arguments.
"""

import os
import re
import shlex
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict

from midflight import durations
from midflight.cli import job_file, job_types
from midflight.cli.submit_flags import FLAGS
from midflight.cli.submit_spec import Place, spec_of
from midflight.controller.spec import Spec
from midflight.controller.spec_check import check
from midflight.errors import MidflightError, UsageError

_FLAG = re.compile(r"--[a-zA-Z-]*[a-zA-Z]")
_ARGUMENTS = {name: flag.field for flag in FLAGS for name in (*flag.names.split(), flag.old)} | {
    "--count": "add or remove",
    "--pod-names": "remove",
    "--since-time": "since",
}


class JobArguments(TypedDict, total=False):
    """Of `Client.submit`: the fields of a job file, which docs/command-line.md explains as flags.

    Lengths of time are seconds or texts such as "10m".
    """

    kind: str  # etjob (default) | pytorchjob
    workers: int
    min_workers: int
    max_workers: int
    gpus: int
    cpu: str | float
    memory: str
    working_dir: str
    env: Mapping[str, str]
    labels: Mapping[str, str]
    selectors: Mapping[str, str]
    sync: Mapping[str, str]  # mode, source, branch, revision
    shell: str
    run_in: str
    nproc_per_node: str | int
    retry: int
    restart_policy: str
    backoff_limit: int
    worker_restart_policy: str
    clean_policy: str
    running_timeout: float | str
    ttl_after_finished: float | str
    max_wait_time: float | str
    spot: bool
    container: Mapping[str, Any]  # image, data, ...; on this machine they are kept only


def spec(
    name: str,
    command: str | Sequence[str],
    arguments: Mapping[str, Any],
    namespace: str,
    cluster: bool,
) -> Spec:
    """A text is a command for the shell, a list of words is passed on as it is."""
    values = job_file.spec_values({"kind": "etjob", **arguments}, "submit()", "argument")
    _check_kind(values)
    values |= {"name": name, "command": _text(command), "namespace": namespace}
    values = {key: str(v) if isinstance(v, Path) else v for key, v in values.items()}
    options = Namespace(command=[], rest=[], said_namespace="", namespace=namespace)
    place = Place(Path.cwd(), Path.home(), os.environ, cluster)
    made = spec_of(options, values["kind"], values, place)
    check(made)
    return made


def _check_kind(values: Mapping[str, Any]) -> None:
    """As for flags; a job file may say more than its kind has a use for."""
    for flag in FLAGS:
        if flag.field in values and values["kind"] not in flag.kinds:
            of, this = flag.kinds[0], values["kind"]
            raise UsageError(f"{flag.field} is for jobs of type {of}, and this is of type {this}")


def _text(command: str | Sequence[str]) -> str:
    text = command if isinstance(command, str) else " ".join(map(shlex.quote, command))
    if not text.strip():
        raise UsageError(f"wanted a command, got {command!r}")
    return text


def kind(text: str) -> str:
    return job_types.canonical(text)


def seconds(time: float | str) -> float:
    return durations.parse(time) if isinstance(time, str) else float(time)


def wish(
    to: int | None, add: int, remove: int | Sequence[str], timeout: float | str, partial: bool
) -> dict[str, Any]:
    """A request for another size: to a number, or by a difference."""
    names = [] if isinstance(remove, int) else [remove] if isinstance(remove, str) else [*remove]
    fewer = remove if isinstance(remove, int) else len(names)
    if (to is not None) + (add != 0) + (fewer != 0) != 1:
        raise UsageError("wanted one of to=N, add=N and remove=N (or the workers' names)")
    if min(add, fewer) < 0:
        raise UsageError(f"wanted a number of workers, 1 or more, got {min(add, fewer)}")
    common = {"timeout": seconds(timeout), "partial": partial}
    if to is not None:
        return {"to": to, **common}
    change = {"kind": "scaleout" if add else "scalein", "count": add or fewer}
    return {**change, "names": list(dict.fromkeys(names)), **common}


def check_known(call: str, given: Mapping[str, Any], known: type) -> None:
    if unknown := given.keys() - known.__annotations__.keys():
        there = ", ".join(known.__annotations__)
        raise UsageError(f"{call}(): unknown argument {', '.join(sorted(unknown))}; wanted {there}")


@contextmanager
def in_arguments() -> Iterator[None]:
    """Errors from below name flags; whoever writes Python never saw one."""
    try:
        yield
    except MidflightError as error:
        error.args = tuple(_FLAG.sub(_argument, str(text)) for text in error.args)
        raise


def _argument(flag: re.Match[str]) -> str:
    usual = flag[0][2:].replace("-", "_")
    return _ARGUMENTS.get(flag[0], usual)
