"""From flags and a job file to a spec: pure, but for the folder and environment it is given.

Flags win over the file, the file over what is usual for the kind of job. The user and password for
git leave the environment here and go where nothing is ever shown.
"""

import argparse
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from midflight.cli.command_text import fold
from midflight.cli.submit_flags import FLAGS, Flag
from midflight.controller.spec import ANY_NUMBER, LOGIN, Spec
from midflight.errors import ProtocolError, UsageError
from midflight.protocol import codec

# Of the submitting shell: what a process needs to find the same programs and libraries.
ENVIRONMENT = (
    "PATH",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "LD_LIBRARY_PATH",
    "LANG",
    "LC_ALL",
    "TZ",
    "OMP_NUM_THREADS",
)
WORKING_DIR = "/root"  # in a container, where nothing was said
_SYNC = {"GIT_SYNC_BRANCH": "branch", "GIT_SYNC_REV": "revision"}


@dataclass(frozen=True)
class Place:
    """Where the command line was typed."""

    folder: Path
    home: Path
    environ: Mapping[str, str]
    cluster: bool = False  # the job will be on other machines, which know neither of these


def given(options: argparse.Namespace) -> dict[Flag, Any]:
    """The flags that were there, with their values."""
    values = ((flag, getattr(options, flag.dest, None)) for flag in FLAGS)
    return {flag: value for flag, value in values if value is not None}


def spec_of(options: argparse.Namespace, kind: str, file: Mapping[str, Any], place: Place) -> Spec:
    """UsageError if no spec can be made of it; whether it makes sense is not asked here."""
    values: dict[str, Any] = {**file, "kind": kind}
    for flag, value in given(options).items():
        if kind not in flag.kinds:
            raise UsageError(f"{flag.long} is for a {flag.kinds[0]}, and this is a {kind}")
        _put(values, flag, value)
    if options.said_namespace or "namespace" not in values:
        values["namespace"] = options.namespace
    if options.command or options.rest:
        values["command"] = _command(options.command, options.rest)
    elif isinstance(values.get("command"), str):
        values["command"] = fold(values["command"])
    _set_limits(values, kind)
    _set_restarts(values, kind)
    _move_git_settings(values)
    values["working_dir"] = _working_dir(values, place)
    usual = {name: place.environ[name] for name in ENVIRONMENT if name in place.environ}
    values["environment"] = {} if place.cluster else values.get("environment", usual)
    return _decoded(values)


def _command(words: Sequence[str], rest: Sequence[str]) -> str:
    """For a shell. What follows `--` is quoted for it, unless it is one word: a quoted command."""
    if not words and len(rest) == 1:
        return fold(rest[0])
    return " ".join([*([fold(" ".join(words))] if words else []), *map(shlex.quote, rest)])


def _put(values: dict[str, Any], flag: Flag, value: Any) -> None:
    outer, dot, inner = flag.field.partition(".")
    if dot:
        values[outer] = {**(values.get(outer) or {}), inner: value}
    elif flag.many:  # names with values: one by one
        values[outer] = {**(values.get(outer) or {}), **dict(value)}
    else:
        values[outer] = value


def _set_limits(values: dict[str, Any], kind: str) -> None:
    least, most = values.get("min_workers"), values.get("max_workers")
    if kind == "etjob" or least is not None or most is not None:
        values["min_workers"] = 1 if least is None else least
        values["max_workers"] = ANY_NUMBER if most is None else most


def _set_restarts(values: dict[str, Any], kind: str) -> None:
    """`--retry N` of an etjob: the whole job starts again, N times at most."""
    if kind == "etjob" and values.get("retry"):
        values.setdefault("restart_policy", "OnFailure")
        values.setdefault("backoff_limit", values["retry"])


def _move_git_settings(values: dict[str, Any]) -> None:
    env = dict(values.get("env") or {})
    secrets = {name: env.pop(name) for name in LOGIN if name in env}
    of_source: dict[str, str] = {}
    if values.get("sync"):
        found = {field: env.pop(name) for name, field in _SYNC.items() if name in env}
        source, of_source = _without_login(values["sync"].get("source"))
        values["sync"] = {**values["sync"], **found, "source": source}
    values["env"] = env
    values["secrets"] = {**of_source, **(values.get("secrets") or {}), **secrets}


def _without_login(source: Any) -> tuple[Any, dict[str, str]]:
    """`https://user:password@host/...` without these two, which are secrets then."""
    head, at, host = str(source).partition("://")[2].partition("/")[0].rpartition("@")
    user, colon, password = head.partition(":")
    if not (at and colon) or not str(source).startswith(("http://", "https://")):
        return source, {}
    from urllib.parse import unquote

    login = dict(zip(LOGIN, (unquote(user), unquote(password)), strict=True))
    return str(source).replace(f"{head}@{host}", host, 1), login


def _working_dir(values: Mapping[str, Any], place: Place) -> str:
    wanted = values.get("working_dir")
    if place.cluster:  # a path inside the image, which only the image knows
        return str(wanted or WORKING_DIR)
    if not wanted:
        return str(place.home if values.get("sync") else place.folder)
    path = place.folder / Path(str(wanted)).expanduser()
    if not path.is_dir():
        raise UsageError(f"--working-dir {wanted}: there is no such folder on this machine")
    return str(path)


def _decoded(values: dict[str, Any]) -> Spec:
    sync = values.get("sync")
    if sync:
        if not sync.get("source"):
            raise UsageError("--syncSource should be set when syncMode is set: give --sync-source")
        if not sync.get("mode"):
            raise UsageError("--sync-source is there without --sync-mode: git or rsync?")
    try:
        return codec.decode(Spec, values)
    except ProtocolError as error:
        raise UsageError(f"this is not a job: {str(error).removeprefix('Spec.')}") from None
