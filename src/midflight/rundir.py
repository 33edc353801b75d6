"""The folder of one run: `$MIDFLIGHT_HOME/runs/NAME`, 0700, every file written atomically.

It holds what processes of one run on one machine have to find: the spec, the token, the
coordinator's address, the embedded store, the ledgers, the record of what happened.
"""

import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from midflight import atomic_file
from midflight.errors import Refused, UsageError
from midflight.flight.records import Record, parse
from midflight.home import home, make_private
from midflight.private_file import read_private
from midflight.protocol import codec
from midflight.protocol.audit import AUDIT
from midflight.protocol.job import JobSpec
from midflight.sink import older

RUN_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")


def check_name(name: str) -> str:
    if not RUN_NAME.fullmatch(name):
        raise UsageError(
            f"a run's name has lower case letters, digits, '-' and '.', at most 63 of them, "
            f"and begins and ends with a letter or digit; got {name!r}"
        )
    return name


FORMER = "former"  # in a folder of ledgers: those of the run before, which this one may resume


class RunDir:
    def __init__(self, path: Path, home: Path | None = None) -> None:
        """`home`: whose `runs` it is in; those are as private as it is itself."""
        self.path = path
        self._home = home

    @classmethod
    def of(cls, name: str, env: Mapping[str, str]) -> "RunDir":
        root = home(env)
        return cls(root / "runs" / check_name(name), root)

    def create(self) -> None:
        """For this user alone, like every folder that is made on the way, and all of its home."""
        above = () if self._home is None else (self._home, self.path.parent)
        try:
            for folder in (*above, self.path, self.ledgers):
                make_private(folder)
        except Refused as error:
            raise UsageError(str(error)) from None
        except OSError as error:
            raise UsageError(f"cannot make the run folder {self.path}: {error.strerror}") from None

    @property
    def token_file(self) -> Path:
        return self.path / "token"

    @property
    def store_url(self) -> str:
        return f"sqlite:///{(self.path / 'store.db').absolute()}"

    @property
    def ledgers(self) -> Path:
        return self.path / "ledgers"

    @property
    def flight_log(self) -> Path:
        """What the coordinator writes down of the run, as JSON lines."""
        return self.path / "flight.jsonl"

    @property
    def audit(self) -> Path:
        """Who asked its coordinator for what."""
        return self.path / AUDIT

    @property
    def has_spec(self) -> bool:
        """Whether a run was ever begun here."""
        return (self.path / "spec.json").exists()

    def read_spec(self) -> JobSpec:
        return codec.decode(JobSpec, codec.loads(self._read("spec.json")))

    def write_spec(self, spec: JobSpec) -> None:
        self._write("spec.json", codec.dumps(spec))

    def read_token(self) -> bytes:
        return read_token(self.token_file)

    def make_token(self, anew: bool = False) -> None:
        """`anew`: whoever had the token of a former run has none of this one."""
        if anew or not self.token_file.exists():
            self._write("token", secrets.token_hex(32).encode() + b"\n")

    def read_address(self) -> str | None:
        """HOST:PORT of the coordinator, None while it has never been up."""
        try:
            return (self.path / "address").read_text().strip()
        except OSError:
            return None

    def write_address(self, address: str) -> None:
        self._write("address", address.encode() + b"\n")

    def read_flight_log(self) -> list[Record]:
        """What the coordinator has written down so far; nothing if it has not begun."""
        return read_records(older(self.flight_log)) + read_records(self.flight_log)

    def _read(self, name: str) -> bytes:
        try:
            return (self.path / name).read_bytes()
        except OSError as error:
            raise UsageError(f"cannot read {self.path / name}: {error.strerror}") from None

    def _write(self, name: str, data: bytes) -> None:
        try:
            atomic_file.write(self.path / name, data)
        except OSError as error:
            raise UsageError(f"cannot write {self.path / name}: {error.strerror}") from None


def read_records(path: Path) -> list[Record]:
    try:
        return parse(path.read_text(encoding="ascii", errors="replace").split("\n"))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None


def read_token(path: Path) -> bytes:
    """Whoever has it can run commands, and whoever chose it has it."""
    token = read_private(path, "token file", "delete it and have another made").strip()
    if not token:
        raise UsageError(f"the token file {path} is empty")
    return token
