"""A launcher inside an instance of a job: whoever runs the job says where everything is.

Then the run lives in the job's folder, its hosts are the job's workers, as the job's hostfile says,
and their agents come by themselves: whoever runs the job has started them. An instance that is a
worker as well (`MIDFLIGHT_HOST`) has its agent from the launcher. Where the folder is gone with the
instance, as in a pod, the variables below name what stays: the hostfile, the token, the store, and
the address at which the workers look for the launcher.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from midflight.backoff import LOOK
from midflight.errors import JobFailed, UsageError
from midflight.run.hosts import Hosts, parse_listing

JOB_DIR, JOB, HOST, MEMBER = (
    "MIDFLIGHT_JOB_DIR",
    "MIDFLIGHT_JOB",
    "MIDFLIGHT_HOST",
    "MIDFLIGHT_MEMBER",
)
HOSTFILE, TOKEN_FILE, LISTEN, STORE = (
    "MIDFLIGHT_HOSTFILE",
    "MIDFLIGHT_TOKEN_FILE",
    "MIDFLIGHT_LISTEN",
    "MIDFLIGHT_STORE",
)
OWN_SCRIPT = "discover_hosts.sh"  # wherever a guide says that it lies


@dataclass(frozen=True)
class Hosted:
    folder: Path
    job: str
    own_host: str | None  # None: this instance is no worker
    hostfile: Path
    token_file: Path | None = None  # None: the run makes its own token
    listen: str | None = None  # None: wherever it is reached from this machine
    store: str | None = None  # None: the run folder's own, which is gone with the folder

    @property
    def run_folder(self) -> Path:
        return self.folder / "run"

    @property
    def may_move(self) -> bool:
        """Whether another launcher, elsewhere, can take the run up when this one leaves."""
        return self.store is not None

    def means_own_script(self, script: str) -> bool:
        """Whether a discovery script is the job's own, under one of the names it goes by."""
        program = script.split()[0] if script.split() else ""
        found = Path(program)
        if found.name != OWN_SCRIPT:
            return False
        if not found.exists() or found.parent == self.hostfile.parent:
            return True
        return found.resolve().is_relative_to(self.folder.resolve())


def hosted(environ: Mapping[str, str]) -> Hosted | None:
    """None for a launcher that somebody started by hand, or inside a training process."""
    if not environ.get(JOB_DIR) or environ.get(MEMBER):
        return None
    folder = Path(environ[JOB_DIR])
    token_file = environ.get(TOKEN_FILE)
    return Hosted(
        folder=folder,
        job=environ.get(JOB) or folder.name,
        own_host=environ.get(HOST) or None,
        hostfile=Path(environ.get(HOSTFILE) or folder / "edl" / "hostfile"),
        token_file=Path(token_file) if token_file else None,
        listen=environ.get(LISTEN) or None,
        store=environ.get(STORE) or None,
    )


class HostfileDiscovery:
    """Reads the job's hostfile; before it is written there are no hosts."""

    pause = LOOK

    def __init__(self, path: Path, default_slots: int) -> None:
        self._path = path
        self._default_slots = default_slots

    async def look(self) -> Hosts:
        try:
            return parse_listing(self._path.read_text(encoding="utf-8"), self._default_slots)
        except FileNotFoundError:
            return {}
        except (OSError, UsageError) as error:
            raise JobFailed(f"the hostfile {self._path} cannot be used: {error}") from None
