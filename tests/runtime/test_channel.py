"""When what a channel moves counts as moved: a fake device that has it later than it says."""

from typing import Any

import pytest
import torch

from midflight.runtime.state import channel
from midflight.runtime.state.channel import Channel


class FakeStream:
    """Carries out what was put into it when somebody waits for it."""

    def __init__(self) -> None:
        self.ordered: list[Any] = []

    def wait_for(self, device: torch.device) -> None:
        while self.ordered:
            self.ordered.pop(0)()


class FakeNccl:
    """Its works, like NCCL's, are no proof of anything: waiting for one puts streams in order."""

    def __init__(self, stream: FakeStream) -> None:
        self._stream = stream

    def name(self) -> str:
        return "gloo"  # whose memory, the CPU's, is that of the fake device

    def recv(self, tensors: list[torch.Tensor], source: int, tag: int) -> Any:
        self._stream.ordered.append(lambda: tensors[0].fill_(7))
        return self

    def send(self, tensors: list[torch.Tensor], target: int, tag: int) -> Any:
        return self.recv(tensors, target, tag)

    def wait(self) -> bool:
        return True


def test_a_fake_device_has_all_of_it_when_finish_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = FakeStream()
    monkeypatch.setattr(channel, "wait_for_device", stream.wait_for)
    room = torch.zeros(10, dtype=torch.uint8)
    receiving = Channel(FakeNccl(stream), 0, "recv", 0)
    receiving.add(room)
    receiving.finish()
    assert torch.equal(room, torch.full((10,), 7, dtype=torch.uint8))


def test_bytes_count_as_moved_when_the_device_has_them_and_not_when_they_are_on_their_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The heartbeats tell them, and a transfer that comes on is given more time."""
    stream, counts = FakeStream(), list[int]()
    before = channel.bytes_moved()

    def wait_for(device: torch.device) -> None:
        counts.append(channel.bytes_moved() - before)
        stream.wait_for(device)

    monkeypatch.setattr(channel, "wait_for_device", wait_for)
    monkeypatch.setattr(channel, "MESSAGE", 4)
    receiving = Channel(FakeNccl(stream), 0, "recv", 0)
    receiving.add(torch.zeros(10, dtype=torch.uint8))
    receiving.finish()
    assert counts == [0, 4, 8, 10], "before each of three messages, and at the end"
    assert channel.bytes_moved() - before == 10
