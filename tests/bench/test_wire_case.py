"""What a frame costs with its MAC and without: that both are measured, not how much it is."""

import pytest

from bench import wire_case


def test_a_frame_is_measured_with_its_mac_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_case, "ROUNDS", 1)
    monkeypatch.setattr(wire_case, "ROUND_SECONDS", 1e-6)
    found = {row.metric: row for row in wire_case.run()}
    assert found["heartbeat, frame"].unit == "bytes"
    assert {"heartbeat without MAC", "heartbeat with MAC and TLS"} <= found.keys()
    assert all(row.value > 0 for row in found.values())
