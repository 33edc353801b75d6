"""The launcher's own notes in the run folder: which store was used, which agents were started.

The store is needed to show a run that is over; the agents to find those that outlived a launcher.
Only the launcher that holds the run's lock writes here.
"""

from dataclasses import dataclass, field

from midflight import atomic_file
from midflight.errors import UsageError
from midflight.protocol import codec
from midflight.rundir import RunDir

_FILE = "launch.json"


@dataclass(frozen=True)
class Record:
    store: str
    agents: dict[str, int] = field(default_factory=dict)  # host to process id


def read_record(folder: RunDir) -> Record:
    """What was noted; the defaults if nothing was, or if it cannot be read."""
    try:
        return codec.decode(Record, codec.loads((folder.path / _FILE).read_bytes()))
    except FileNotFoundError:
        return Record(store=folder.store_url)
    except OSError as error:
        raise UsageError(f"cannot read {folder.path / _FILE}: {error.strerror}") from None


def write_record(folder: RunDir, record: Record) -> None:
    try:
        atomic_file.write(folder.path / _FILE, codec.dumps(record))
    except OSError as error:
        raise UsageError(f"cannot write {folder.path / _FILE}: {error.strerror}") from None
