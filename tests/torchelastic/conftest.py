"""The launcher tests' site and the store tests' etcd; temporary folders go to the test's own."""

from pathlib import Path

import pytest

from tests.run.conftest import site
from tests.run.site import Site
from tests.store.conftest import etcd, etcd_binary, start_etcd

__all__ = ["etcd", "etcd_binary", "own_temporary_folder", "site", "start_etcd"]


@pytest.fixture(autouse=True)
def own_temporary_folder(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if "site" in request.fixturenames:
        place: Site = request.getfixturevalue("site")
        folder = tmp_path / "temporary"
        folder.mkdir()
        place.env["TMPDIR"] = str(folder)
