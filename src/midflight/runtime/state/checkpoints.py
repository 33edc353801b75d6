"""Checkpoints while training goes on: when the next is due, and the thread that writes it.

The training thread copies the state at a step boundary and goes on; a thread writes the copy. The
copy goes into memory that is kept from one checkpoint to the next and was made beforehand, by the
thread, so that the pause is that copy and nothing else. One that is due while another is being
written waits for it. A folder that takes nothing (full, read-only) is warned of once, and tried
again each time: that must not end the training. Every member knows what is due; rank 0 of now
writes, so that whoever takes its place goes on in time. The last state is written as it lies,
without a copy, while the script waits: until it is on the disk the member has not finished.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from midflight import durations, terminal
from midflight.errors import StateError, UsageError
from midflight.runtime.state import checkpoint_folder, room
from midflight.runtime.state.agreement import try_capture
from midflight.runtime.state.channel import note_moved, wait_for_device
from midflight.runtime.state.layout import Prepared, Snapshot
from midflight.runtime.torch_private import copy_each

END_SECONDS = 600.0  # without another byte written: a folder on a network may never answer


@dataclass(frozen=True)
class Interval:
    """How often: in steps or in seconds, the other one is None."""

    steps: int | None
    seconds: float | None

    @classmethod
    def of(cls, every: int | str) -> "Interval":
        """Of what a script says: a number of steps, or a length of time as in 10m."""
        found = cls(every, None) if isinstance(every, int) else cls(None, durations.parse(every))
        if not (found.steps or found.seconds or 0) > 0:
            raise UsageError(
                f"wanted every= a number of steps or a time such as 10m, got {every!r}"
            )
        return found

    def is_over(self, steps: tuple[int, int], seconds: float) -> bool:
        """`steps`: the one of the last checkpoint, and the present one. `seconds`: since then."""
        if self.steps is not None:
            return steps[1] // self.steps > steps[0] // self.steps
        assert self.seconds is not None
        return seconds >= self.seconds and steps[1] > steps[0]


@dataclass(frozen=True)
class Moment:
    """A step boundary, as the session sees it."""

    capture: Callable[[], Snapshot]
    where: Mapping[str, int]  # what the manifest says of the job
    is_writer: bool

    @property
    def step(self) -> int:
        return self.where["step"]


class Checkpoints:
    def __init__(self, folder: Path, every: Interval, keep: int) -> None:
        if keep < 1:
            raise UsageError(f"wanted keep= at least 1 checkpoint, got {keep}")
        self._folder = folder
        self._every = every
        self._keep = keep
        self._last: tuple[int, float] | None = None  # the step and time of the last one
        self._due = False
        self._room: Prepared | None = None
        self._resized = False  # room was made for the one that is due
        self._thread: threading.Thread | None = None
        self._written = 0  # bytes
        self._finishing = False  # the job waits for what is being written
        self._given_up = False
        self._warned = False

    def look(self, moment: Moment) -> None:
        """At a step boundary: copy the state if one is due and its turn has come."""
        now = time.monotonic()
        if self._last is None:
            self._last = (moment.step, now)
        step, at = self._last
        if self._every.is_over((step, moment.step), now - at):
            self._last, self._due = (moment.step, now), True
        if self._is_busy or not moment.is_writer:
            self._due = self._due and moment.is_writer
        elif self._due:
            self._due = not self._copy(moment)
        elif self._room is None and not self._warned and moment.step > step:
            self._copy(moment)  # makes room only: an optimizer has its state by now

    def finish(self, moment: Moment) -> None:
        """Training is complete: the last state is kept, too, if it is not there yet.

        Returns when it is on the disk, however long that takes.
        """
        self._finishing = True
        self._wait_or_give_up()
        is_there = self._last is None or (self._last[0] == moment.step and not self._due)
        if is_there or not moment.is_writer or self._given_up:
            return
        self._last, self._due = (moment.step, time.monotonic()), False
        snapshot = try_capture(moment.capture)
        if isinstance(snapshot, StateError):
            self._warn(f"the state of step {moment.step} cannot be kept: {snapshot}")
            return
        for device in {tensor.device for tensor in snapshot.tensors}:
            wait_for_device(device)  # the thread that writes has a stream of its own
        self._begin(lambda: self._write(snapshot, moment.where))
        self._wait_or_give_up()

    def close(self) -> None:
        """Wait for the one that is being written."""
        self._wait_or_give_up()

    def _wait_or_give_up(self) -> None:
        if not self._given_up:
            self._wait()
        if self._is_busy and not self._given_up:
            self._given_up = True
            terminal.say(
                f"warning: {self._folder} has taken nothing of a checkpoint for {END_SECONDS:g} s; "
                "it is left unfinished, and the one before it counts"
            )

    @property
    def _is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _wait(self) -> None:
        """Until it is written, or nothing more of it has been for too long."""
        while self._thread is not None and self._thread.is_alive():
            before = self._written
            self._thread.join(END_SECONDS)
            if self._written == before:
                return

    def _note_written(self, nbytes: int) -> None:
        if self._given_up:  # the state may be changing by now
            raise TimeoutError("it was given up")
        self._written += nbytes
        if self._finishing:
            note_moved(nbytes)

    def _copy(self, moment: Moment) -> bool:
        """True: there is nothing more to copy. False: its room is being made."""
        snapshot = try_capture(moment.capture)
        if isinstance(snapshot, StateError):
            self._warn(f"the state of step {moment.step} cannot be kept: {snapshot}")
            return True
        if not self._has_room(snapshot) and not self._resized:
            self._resized = True
            self._begin(lambda: self._make_room(snapshot))
            return False
        if not self._has_room(snapshot):  # a state that is of another size in every step
            self._make_room(snapshot)
        self._resized = False
        if self._room is None:
            return True
        with torch.no_grad():
            copy_each(self._room.tensors, snapshot.tensors)
        copied = Snapshot(snapshot.blob, self._room.tensors, snapshot.layout)
        self._begin(lambda: self._write(copied, moment.where))
        return True

    def _has_room(self, snapshot: Snapshot) -> bool:
        return self._room is not None and self._room.layout.slots == snapshot.layout.slots

    def _begin(self, work: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=work, name="midflight-checkpoint", daemon=True)
        self._thread.start()

    def _make_room(self, snapshot: Snapshot) -> None:
        self._room = None
        try:
            self._room = room.host_room(snapshot)
        except RuntimeError as error:  # as torch says that there is no memory
            self._warn(f"there is no memory for a copy of the state to write from: {error}")

    def _write(self, snapshot: Snapshot, where: Mapping[str, int]) -> None:
        try:
            checkpoint_folder.write(self._folder, snapshot, where, self._note_written)
            checkpoint_folder.prune(self._folder, self._keep)
        except OSError as error:
            if self._given_up:
                return
            self._warn(
                f"the checkpoint of step {where['step']} could not be written to {self._folder}: "
                f"{error.strerror}; training goes on without it, and the next one is tried"
            )
            return
        if self._warned:
            terminal.say(f"{self._folder} has taken the checkpoint of step {where['step']}")
        self._warned = False

    def _warn(self, text: str) -> None:
        """Once, until one has been written again."""
        if not self._warned:
            self._warned = True
            terminal.say(f"warning: {text}")
