"""Stores to test against: each test gets a fresh, empty one of each kind, and other processes.

The one on Kubernetes is on the cluster that all tests share, `plane`.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from uuid import uuid4

import pytest

import midflight.store
from midflight.store import Store, open_store
from tests.packages import Missing
from tests.store.config_maps import make_config_map
from tests.store.etcd_binary import find_etcd, is_sound
from tests.store.etcd_process import Etcd

StartEtcd = Callable[..., Etcd]
StartChild = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="session")
def etcd_binary() -> Path:
    try:
        return find_etcd()
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def etcd(etcd_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """One server for the whole session; nobody stops it."""
    server = Etcd(etcd_binary, tmp_path_factory.mktemp("etcd"))
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture
def start_etcd(etcd_binary: Path, tmp_path: Path) -> Iterator[StartEtcd]:
    """Servers of the test's own, to be killed and restarted."""
    if not is_sound(etcd_binary):
        pytest.skip(
            "the only etcd here may lose confirmed writes when it is killed: 3.5.0 to 3.5.2"
        )
    started: list[Etcd] = []

    def start(size: int = 1, tls: bool = False, options: Sequence[str] = ("--auto-tls",)) -> Etcd:
        server = Etcd(etcd_binary, tmp_path / f"etcd-{len(started)}", size, tls, options)
        started.append(server)
        server.start()
        return server

    yield start
    for server in started:
        server.stop()


@pytest.fixture(params=["embedded", "etcd", "kubernetes"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store that nobody else uses."""
    if request.param == "embedded":
        return f"sqlite://{tmp_path}/store.db"
    if request.param == "kubernetes":
        return make_config_map(request.getfixturevalue("plane"))
    server: Etcd = request.getfixturevalue("etcd")
    return server.url(prefix=f"test-{uuid4().hex}")


@pytest.fixture
def opened() -> Iterator[Callable[..., Store]]:
    """Opens stores that are closed when the test ends."""
    stores: list[Store] = []

    def open_one(url: str, patience: float = 30.0) -> Store:
        stores.append(open_store(url, patience=patience))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


@pytest.fixture
def store(store_url: str, opened: Callable[..., Store]) -> Store:
    return opened(store_url)


@pytest.fixture
def child() -> Iterator[StartChild]:
    """Starts child.py; whatever still runs when the test ends is killed."""
    children: list[subprocess.Popen[str]] = []
    sources = Path(midflight.store.__file__).parents[2]
    script = Path(__file__).with_name("child.py")

    def start(verb: str, url: str, *arguments: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, str(script), verb, url, *arguments],
            env=os.environ | {"PYTHONPATH": str(sources)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        children.append(process)
        return process

    yield start
    for process in children:
        process.kill()
        process.communicate()
