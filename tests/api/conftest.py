"""A client, and the fake server that it asks."""

import pytest

from midflight.api.client import Client
from tests.cli.fake_server import FakeServer
from tests.cli.verbs.conftest import fake

__all__ = ["client", "fake"]


@pytest.fixture
def client(fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setenv("MIDFLIGHT_HOME", str(fake.home))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return Client()
