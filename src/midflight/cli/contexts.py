"""Where verbs go: this machine, or a cluster. What is said most plainly wins.

`--config FILE`, then `midflight context use`, then KUBECONFIG, else this machine. What was chosen
with `context use` is kept in one small file of the user's home. Nothing heavy is loaded here, since
every verb asks.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from midflight.controller.spec import DEFAULT_NAMESPACE
from midflight.errors import MidflightError, UsageError
from midflight.home import home

if TYPE_CHECKING:
    from midflight.kubernetes.api.kubeconfig import Settings

LOCAL, KUBERNETES, IN_CLUSTER = "local", "kubernetes", "in-cluster"
PLACES = (LOCAL, KUBERNETES, IN_CLUSTER)
FILE = "context"


@dataclass(frozen=True)
class Stored:
    """What `midflight context use` has said."""

    use: str
    context: str = ""  # of the kubeconfig; "" for its current one
    config: str = ""  # "" for KUBECONFIG's, or the usual one
    namespace: str = ""


@dataclass(frozen=True)
class Chosen:
    place: str
    why: str
    config: str = ""
    context: str = ""
    namespace: str = ""  # "": as the kubeconfig says

    @property
    def is_local(self) -> bool:
        return self.place == LOCAL


def choose(flag: str, stored: Stored | None, environ: Mapping[str, str]) -> Chosen:
    """`flag`: what --config says."""
    given = environ.get("KUBECONFIG", "")
    usual = _arena_namespace(environ)
    if flag:
        return Chosen(KUBERNETES, "--config says so", flag, namespace=usual)
    if stored is not None:
        why = f"`midflight context use {_word(stored)}` said so"
        if stored.use == LOCAL:
            return Chosen(LOCAL, why)
        config = (stored.config or given) if stored.use == KUBERNETES else ""
        return Chosen(stored.use, why, config, stored.context, stored.namespace or usual)
    if given:
        return Chosen(KUBERNETES, "KUBECONFIG is set", given, namespace=usual)
    return Chosen(LOCAL, "nothing else was said")


def _word(stored: Stored) -> str:
    return f"{stored.use}:{stored.context}" if stored.context else stored.use


def current(flag: str) -> Chosen:
    """As this process finds it."""
    return choose(flag, read(home(os.environ)) if not flag else None, os.environ)


def namespace(flag: str) -> str:
    """The one that is meant where nothing is said. Never fails: connecting will, and says why."""
    try:
        chosen = current(flag)
        if chosen.is_local:
            return DEFAULT_NAMESPACE
        return chosen.namespace or settings(chosen).namespace or DEFAULT_NAMESPACE
    except MidflightError:
        return DEFAULT_NAMESPACE


def settings(chosen: Chosen) -> "Settings":
    """Of the cluster, by its kubeconfig or by the pod that this is."""
    from midflight.kubernetes.api import kubeconfig

    if chosen.place == IN_CLUSTER:
        return kubeconfig.in_pod(os.environ)
    files = kubeconfig.files(chosen.config, Path.home())
    return kubeconfig.read(files, chosen.context)


# --- what is kept ---------------------------------------------------------------------------------


def read(folder: Path) -> Stored | None:
    """None if nothing was ever said."""
    path = folder / FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        stored = Stored(**found)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError):
        raise _unreadable(path) from None
    if stored.use not in PLACES:
        raise _unreadable(path)
    return stored


def _unreadable(path: Path) -> UsageError:
    return UsageError(
        f"{path} cannot be read; say again where to work, with `midflight context use "
        f"{LOCAL}` or `{KUBERNETES}`"
    )


def write(folder: Path, stored: Stored) -> None:
    from midflight import atomic_file  # only `context use` writes

    path = folder / FILE
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        atomic_file.write(path, json.dumps(asdict(stored)).encode())
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


def _arena_namespace(environ: Mapping[str, str]) -> str:
    """What Arena's own configuration says, for those who have one."""
    usual = Path(environ.get("HOME", "/")) / ".arena" / "config"
    try:
        lines = Path(environ.get("ARENA_CONFIG") or usual).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    pairs = (line.partition("=") for line in lines if not line.lstrip().startswith("#"))
    found = {key.strip(): value.strip() for key, _, value in pairs}
    return found.get("namespace", "")
