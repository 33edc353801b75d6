"""The command line, typed in this process: quick, and otherwise as everybody types it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch
from uuid import uuid4

import pytest

from midflight.cli.main import main
from midflight.kubernetes.api.connection import connect
from tests.kubernetes.plane.control import Plane
from tests.kubernetes.verb_site import Said, Site


@contextmanager
def typing_in(plane: Plane, folder: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Site]:
    """A namespace of its own, and an empty home."""
    namespace = f"verbs-{uuid4().hex[:8]}"
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    plane.api.call("POST", "/api/v1/namespaces", space)
    environ = {"MIDFLIGHT_HOME": str(folder / "home"), "MIDFLIGHT_LOG_FORMAT": "text"}

    def run(argv: list[str]) -> Said:
        capfd.readouterr()
        with patch.dict("os.environ", environ):
            code = main(argv)
        return Said(code, *capfd.readouterr())

    connection = connect(str(plane.kubeconfig), namespace=namespace)
    try:
        yield Site(plane.api, plane.kubeconfig, namespace, connection, run)
    finally:
        connection.close()
        plane.api.delete(f"/api/v1/namespaces/{namespace}")
