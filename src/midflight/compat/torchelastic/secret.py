"""The secret that the nodes of one job share; torchrun's users have none to give.

From the file that MIDFLIGHT_TOKEN_FILE names, if it is set on all nodes. Else, when the nodes meet
on the loopback, from a file in the user's own folder, which nobody else can read. Else from the
job's name alone: that keeps jobs apart, and keeps nobody out who knows the name and reaches the
port. The name is part of it in every case.
"""

import contextlib
import hashlib
import hmac
import os
import secrets
import tempfile
from collections.abc import Mapping
from pathlib import Path

from midflight.errors import UsageError
from midflight.home import home, make_private
from midflight.rundir import read_token

TOKEN_FILE = "MIDFLIGHT_TOKEN_FILE"
DEFAULT_ID = "none"  # torchrun's
_PUBLIC = b"midflight torchrun"


def secret_of(run_id: str, on_loopback: bool, environ: Mapping[str, str]) -> bytes:
    base = _PUBLIC
    if environ.get(TOKEN_FILE):
        base = read_token(Path(environ[TOKEN_FILE]))
    elif on_loopback:
        base = _of_user(home(environ))
    return of_run(base, run_id)


def of_run(base: bytes, run_id: str) -> bytes:
    return hmac.new(base, run_id.encode(), hashlib.sha256).hexdigest().encode()


def warning(run_id: str, on_loopback: bool, environ: Mapping[str, str]) -> str | None:
    """What to say of a secret that others can guess; None if they cannot."""
    if on_loopback or environ.get(TOKEN_FILE):
        return None
    offer = (
        f"Give all nodes the same random id, such as --rdzv-id={secrets.token_hex(16)}, or set "
        f"{TOKEN_FILE} to a copy of one file: (umask 077; openssl rand -hex 32 > midflight.token)"
    )
    if run_id == DEFAULT_ID:
        return (
            "warning: without --rdzv-id the job's secret is known to everybody: who reaches the "
            f"endpoint can join, or pretend to be the coordinator. {offer}"
        )
    return (
        "warning: the job's secret follows from --rdzv-id: whoever guesses it and reaches the "
        f"endpoint can join. {offer}"
    )


def _of_user(folder: Path) -> bytes:
    """Made once; whoever comes second takes what the first has made."""
    path = folder / "torchrun.token"
    try:
        make_private(folder)
        if not os.path.lexists(path):
            handle, temporary = tempfile.mkstemp(dir=folder, prefix=".torchrun.")  # 0600
            with os.fdopen(handle, "w") as file:
                file.write(secrets.token_hex(32) + "\n")
            with contextlib.suppress(FileExistsError):
                os.link(temporary, path)
            os.unlink(temporary)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; see {TOKEN_FILE}") from None
    return read_token(path)
