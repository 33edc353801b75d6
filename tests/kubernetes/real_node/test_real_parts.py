"""What a node with real containers lacks is said in one line, by which its tests are skipped."""

import os
from pathlib import Path

import pytest

from tests.kubernetes.plane import real_parts
from tests.kubernetes.plane.binaries import Binaries
from tests.packages import Missing


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Binaries:
    """As root, with an empty cache, and with nothing of Kubernetes."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Binaries(tmp_path, tmp_path / "etcd", None)


def _tool(folder: Path, name: str, text: str = "") -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_it_takes_root(programs: Binaries, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Missing, match="needs root"):
        real_parts.obtain(programs)


def test_it_takes_tools(programs: Binaries, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Missing, match="needs ip, mount, unshare on the PATH"):
        real_parts.obtain(programs)


def test_it_takes_a_kubelet_and_packages(
    programs: Binaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = programs.folder / "tools"
    monkeypatch.setenv("PATH", str(tools))
    for name in ("ip", "mount", "unshare"):
        _tool(tools, name)
    with pytest.raises(Missing, match="needs a kubelet"):
        real_parts.obtain(programs)
    _tool(programs.folder, "kubelet")
    with pytest.raises(Missing, match="needs apt-get, dpkg to fetch containerd"):
        real_parts.obtain(programs)
    _tool(tools, "dpkg")
    _tool(tools, "apt-get", "echo no mirror answers >&2; exit 100")
    with pytest.raises(Missing, match="apt-get download failed: no mirror answers"):
        real_parts.obtain(programs)
    assert not list((programs.folder / "cache").rglob("containers-*"))
