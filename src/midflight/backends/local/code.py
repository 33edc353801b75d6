"""Fetching a job's code with the real git and rsync, once, before anything starts.

What was fetched is noted in `JOB/code.json`; a fetch that was cut off has no note, and begins anew.
A commit that is known already is fetched again as it was. User and password reach git through a
script that it asks, and never stand in an argument, a message or the clone's configuration.
Where the code shows up in the working directory is `code_link.py`'s business.
"""

import asyncio
import contextlib
import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from midflight.atomic_file import write
from midflight.controller.spec import HIDDEN, Spec
from midflight.deadlines import FETCH
from midflight.errors import JobFailed
from midflight.processes import kill_group

NOTE = "code.json"
_ASKPASS = """#!/bin/sh
case "$1" in
*[/@]"$MIDFLIGHT_GIT_HOST"["'"/]*) ;;
*) exit 1 ;; # a submodule's host, say: it must not see this password
esac
case "$1" in
Username*) printf '%s\\n' "$MIDFLIGHT_GIT_USERNAME" ;;
*) printf '%s\\n' "$MIDFLIGHT_GIT_PASSWORD" ;;
esac
"""
_SAYS_NOTHING = (  # what git adds to the line that says why
    "fatal: Could not read from remote repository",
    "Please make sure you have the correct access rights",
    "and the repository exists",
)
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


@dataclass(frozen=True)
class Source:
    """What is to be fetched. A user and password in the URL are taken out of it."""

    mode: str  # git | rsync
    url: str
    branch: str = ""
    revision: str = ""
    commit: str = ""  # resolved before; it wins over the two
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)

    @property
    def repository(self) -> str:
        """The name of the folder that the code is in."""
        name = self.url.rstrip("/").replace(":", "/").rpartition("/")[2].removesuffix(".git")
        if not re.fullmatch(r"[\w][\w.+@ -]*", name):
            raise JobFailed(f"--sync-source: {self.url!r} does not end with a name to fetch it as")
        return name


def source_of(spec: Spec, commit: str = "") -> Source:
    assert spec.sync is not None
    sync = spec.sync
    url, user, password = _without_user(sync.source)
    return Source(
        sync.mode,
        url,
        sync.branch,
        sync.revision,
        commit,
        spec.secrets.get("GIT_SYNC_USERNAME") or user,
        spec.secrets.get("GIT_SYNC_PASSWORD") or password,
    )


def environment_of(spec: Spec, environ: Mapping[str, str]) -> dict[str, str]:
    """What git and rsync run with: as for the job's own processes, a proxy given with -e too."""
    found = {**environ, **spec.environment, **spec.env}
    return {name: value for name, value in found.items() if not name.startswith("GIT_SYNC_")}


async def fetch(
    source: Source, folder: Path, environ: Mapping[str, str], seconds: float = FETCH
) -> str:
    """Bring the code to `folder/code` and return its commit ("" for rsync); or JobFailed."""
    if (known := _known_commit(folder, source)) is not None:
        return known
    tool = _Tool(source, dict(environ), asyncio.get_running_loop().time() + seconds, seconds)
    if source.mode == "git":
        commit = await _clone(tool, source, folder)
    else:
        commit = ""
        await tool.run("rsync", "-a", "--", source.url, f"{folder / 'code'}/")
    note = json.dumps({"url": source.url, "commit": commit})
    write(folder / NOTE, note.encode())
    return commit


# --- git ----------------------------------------------------------------------------------------


async def _clone(tool: "_Tool", source: Source, folder: Path) -> str:
    place = folder / "code" / source.repository
    await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)
    _prepare_git(tool, source, folder)
    branch = (f"--branch={source.branch}",) if source.branch else ()
    await tool.git("clone", "--quiet", "--no-checkout", *branch, "--", source.url, str(place))
    wanted = source.commit or source.revision
    commit = await _resolve(tool, place, wanted or "HEAD")
    detached = ("--detach", commit) if wanted else ()
    await tool.git("-C", str(place), "checkout", "--quiet", "--force", *detached)
    if (place / ".gitmodules").exists():
        modules = ("submodule", "--quiet", "update", "--init", "--recursive")
        await tool.git("-C", str(place), *modules)
    return commit


async def _resolve(tool: "_Tool", place: Path, revision: str) -> str:
    """The commit that is meant: a branch of the source, a tag, or a commit of any branch."""
    if revision.startswith("-"):
        raise JobFailed(f"wanted a branch, tag or commit as the revision, got {revision!r}")
    for name in (revision, f"refs/remotes/origin/{revision}"):
        with contextlib.suppress(_Failed):
            return await _commit_of(tool, place, name)
    # One that no branch leads to any more; not every server hands it out.
    await tool.git("-C", str(place), "fetch", "--quiet", "origin", revision)
    return await _commit_of(tool, place, "FETCH_HEAD")


async def _commit_of(tool: "_Tool", place: Path, name: str) -> str:
    words = ("rev-parse", "--quiet", "--verify", f"{name}^{{commit}}")
    commit = (await tool.git("-C", str(place), *words)).strip()
    if not _COMMIT.fullmatch(commit):
        raise JobFailed(f"wanted a commit from git, got {commit!r:.80}")
    return commit


def _prepare_git(tool: "_Tool", source: Source, folder: Path) -> None:
    """Nothing may ask a person, and nothing but our script may be asked for the password."""
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        tool.environ.pop(name, None)
    tool.environ |= {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "", "LC_ALL": "C"}
    tool.environ.setdefault("GIT_SSH_COMMAND", "ssh -oBatchMode=yes")
    if source.password:
        script = folder / ".askpass"
        write(script, _ASKPASS.encode(), 0o700)
        tool.environ |= {
            "GIT_ASKPASS": str(script),
            "MIDFLIGHT_GIT_HOST": urlsplit(source.url).netloc.rpartition("@")[2],
            "MIDFLIGHT_GIT_USERNAME": source.username,
            "MIDFLIGHT_GIT_PASSWORD": source.password,
        }
        tool.git_options = ("-c", "credential.helper=")  # a helper would keep what we answer


def _without_user(url: str) -> tuple[str, str, str]:
    """An http URL without `user:password@`, and these two; any other as it is."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url, "", ""
    if parts.scheme not in ("http", "https") or parts.password is None:
        return url, "", ""
    host = parts.netloc.rpartition("@")[2]
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return urlunsplit(parts._replace(netloc=host)), user, password


# --- programs -----------------------------------------------------------------------------------


class _Failed(JobFailed):
    """A program ended with something else than 0."""


class _Tool:
    """Runs programs for one fetch, with one environment and one deadline for all of them."""

    def __init__(
        self, source: Source, environ: dict[str, str], deadline: float, seconds: float
    ) -> None:
        self.environ = environ
        self.git_options: tuple[str, ...] = ()
        self._source = source
        self._deadline = deadline
        self._seconds = seconds
        environ.setdefault("RSYNC_RSH", "ssh -oBatchMode=yes")

    async def git(self, *words: str) -> str:
        return await self.run("git", *self.git_options, *words)

    async def run(self, *words: str) -> str:
        """What it printed. Its output goes to a file: whoever outlives it may hold a pipe."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                process = await asyncio.create_subprocess_exec(
                    *words,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    env=self.environ,
                    start_new_session=True,
                )
            except FileNotFoundError:
                raise JobFailed(
                    f"--sync-mode {self._source.mode} needs {words[0]}, which was not found on "
                    "the PATH; install it, or fetch the code yourself and give --working-dir"
                ) from None
            code = await self._ended(process)
            err.seek(0)
            if code != 0:
                raise _Failed(self._complaint(words[0], code, err.read().decode(errors="replace")))
            out.seek(0)
            return out.read().decode(errors="replace")

    async def _ended(self, process: asyncio.subprocess.Process) -> int:
        try:
            async with asyncio.timeout_at(self._deadline):
                return await process.wait()
        except TimeoutError:
            raise JobFailed(
                f"{self._source.url} was not fetched within {self._seconds:g} s and given up; "
                "check that it can be reached from here"
            ) from None
        finally:
            if process.returncode is None:
                kill_group(process.pid)
                await process.wait()

    def _complaint(self, program: str, code: int, errors: str) -> str:
        lines = [line.strip() for line in errors.splitlines() if line.strip()]
        lines = [line for line in lines if not line.startswith(_SAYS_NOTHING)]
        fatal = [line for line in lines if line.startswith(("fatal:", "rsync:", "ERROR:"))]
        said = (fatal or lines or [f"it ended with exit code {code}"])[-1]
        for secret in (self._source.password, self._source.username):
            said = said.replace(secret, HIDDEN) if secret else said
        return f"{program} could not fetch {self._source.url}: {said}{_advice(said)}"


def _advice(said: str) -> str:
    if "could not read Username" in said or "could not read Password" in said:
        return (
            "; it asks for a user and a password: give them with "
            "-e GIT_SYNC_USERNAME=... -e GIT_SYNC_PASSWORD=..."
        )
    if "Authentication failed" in said:
        return "; check GIT_SYNC_USERNAME and GIT_SYNC_PASSWORD"
    return ""


def fetched(folder: Path) -> tuple[str, str] | None:
    """The source and the commit of what was fetched to the end; None if nothing was."""
    try:
        found = json.loads((folder / NOTE).read_text())
        return str(found["url"]), str(found["commit"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _known_commit(folder: Path, source: Source) -> str | None:
    """The commit, if this very source is here already."""
    url, commit = fetched(folder) or ("", "")
    if url != source.url or source.commit not in ("", commit):
        return None
    if source.mode == "git" and not (folder / "code" / source.repository).is_dir():
        return None
    return commit
