"""What all tests share: no cluster by accident, and one control plane for those that want one.

Tests on the plane count as slow: it takes seconds to start, and on a new machine minutes to build.
Where its programs cannot be had they are skipped, and say what is missing.
"""

import os
import signal
from collections.abc import Iterator

import pytest

from tests.kubernetes.plane import binaries
from tests.kubernetes.plane.binaries import Binaries
from tests.kubernetes.plane.control import Plane
from tests.packages import Missing

PROGRAMS = pytest.StashKey[Binaries | Missing]()
os.environ.pop("KUBECONFIG", None)  # or the verbs would go to whatever cluster it names
# A worker of xdist ignores SIGINT, and so would everything that its tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _signal_handlers_stay() -> Iterator[None]:
    """A test that leaves a handler behind changes what a later one sees, so it fails itself.

    An event loop that ends puts Python's own handlers in place, whatever there was before.
    """
    usual = (signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    after = {number: signal.getsignal(number) for number in before}
    for number, handler in before.items():
        signal.signal(number, handler)
    left = [n.name for n in before if after[n] not in (before[n], *usual)]
    assert not left, f"the test has left handlers of {left}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those on the plane stay together, or there would be one for each worker; so does a file."""
    for item in items:
        if _wants_plane(item):
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.xdist_group("plane"))
        else:
            item.add_marker(pytest.mark.xdist_group(item.nodeid.split("::")[0]))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Builds what is missing now: it takes longer than any test may."""
    wanted = any(_wants_plane(item) for item in session.items)
    if wanted and not session.config.option.collectonly:
        capture = session.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            session.config.stash[PROGRAMS] = _obtained()


def _wants_plane(item: pytest.Item) -> bool:
    """By its fixtures, or because it is asked to run on the store that is on one."""
    if "plane" in getattr(item, "fixturenames", ()):
        return True
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    return bool(parameters.get("store_url") == "kubernetes")


def _obtained() -> Binaries | Missing:
    try:
        return binaries.obtain()
    except Missing as missing:
        return missing


@pytest.fixture(scope="session")
def plane(request: pytest.FixtureRequest) -> Iterator[Plane]:
    """The control plane alone, with our custom resources."""
    from midflight.kubernetes.resources.crds import crds

    programs = request.config.stash.get(PROGRAMS, None) or _obtained()
    if isinstance(programs, Missing):
        pytest.skip(str(programs))
    started = Plane.start(programs, crds())
    yield started
    started.stop()
