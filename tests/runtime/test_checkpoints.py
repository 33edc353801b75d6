"""Checkpoints in a folder: whole or absent, whatever happens while they are written."""

import json
import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import midflight as mf
from midflight.errors import StateError, UsageError
from midflight.runtime.state import checkpoint, checkpoint_folder, room
from midflight.runtime.state.channel import bytes_moved
from midflight.runtime.state.checkpoints import END_SECONDS, Checkpoints, Interval
from tests.runtime.handing import same_bits

SAMPLES = 12


class Trainee:
    """A model that counts its samples, with an optimizer that has a state, and odd tensors."""

    def __init__(self, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
        self.model.to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)

    def join(self, **options: Any) -> mf.Job:
        return mf.join(model=self.model, optimizer=self.optimizer, **options)

    def step(self, job: mf.Job, batch: Any) -> None:
        data = torch.full((2, 3, 5, 5), float(sum(batch.indices)))
        assert job.step(self.model(data).square().mean())

    def state(self) -> list[Any]:
        return [dict(self.model.state_dict()), self.optimizer.state_dict()]


def train(folder: Path, steps: int, *, seed: int = 0, keep: int = 3) -> tuple[Trainee, list[int]]:
    """Train up to that step, with a checkpoint after every second one; and the samples used."""
    trainee, used = Trainee(seed), []
    with trainee.join(resume=folder) as job:
        job.checkpoints(folder, every=2, keep=keep)
        for batch in job.batches(range(SAMPLES), global_batch_size=2, epochs=2):
            trainee.step(job, batch)
            used += batch.indices
            job.state.used = len(used)
            await_written(job)
            if job.step_number == steps:
                break
    return trainee, used


def await_written(job: mf.Job) -> None:
    """Else a slow disk would decide which steps have a checkpoint."""
    checkpoints = job._session.checkpoints
    assert checkpoints is not None
    checkpoints._wait()


def steps_in(folder: Path) -> list[int]:
    return [entry.step for entry in checkpoint_folder.entries(folder)]


def test_what_follows_a_resume_is_exactly_the_rest(tmp_path: Path) -> None:
    whole, everything = train(tmp_path / "whole", 12)
    _, first = train(tmp_path / "two", 5)
    second, rest = train(tmp_path / "two", 12, seed=1)
    assert first + rest == everything
    assert sorted(everything) == sorted([*range(SAMPLES)] * 2)
    assert same_bits(second.state(), whole.state())


def test_the_last_state_is_kept_and_older_ones_go(tmp_path: Path) -> None:
    train(tmp_path, 7, keep=2)
    assert steps_in(tmp_path) == [7, 6]
    assert len(list(tmp_path.iterdir())) == 4  # nothing else is left


def test_a_job_that_begins_where_it_ends_writes_nothing(tmp_path: Path) -> None:
    train(tmp_path, 12)
    before = sorted(tmp_path.iterdir())
    train(tmp_path, 12)
    assert sorted(tmp_path.iterdir()) == before


def test_a_notebook_reads_it(tmp_path: Path) -> None:
    trainee, used = train(tmp_path, 4)
    saved = mf.load(tmp_path)
    assert (saved.step, saved.epoch, saved.state) == (4, 0, {"used": len(used)})
    assert same_bits(dict(saved["model"]), dict(trainee.model.state_dict()))
    fresh = Trainee(1)
    fresh.optimizer.load_state_dict(saved["optimizer"])
    assert same_bits(fresh.optimizer.state_dict(), trainee.optimizer.state_dict())
    assert mf.load(saved.path).step == 4
    with pytest.raises(StateError, match="there is no checkpoint in"):
        mf.load(tmp_path / "nowhere")


def test_the_tensors_are_those_of_a_safetensors_file(tmp_path: Path) -> None:
    """By the format's own description: length, table, rows in order, nothing in between."""
    trainee, _ = train(tmp_path, 2)
    (path,) = tmp_path.glob("000001*.safetensors")
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    table = json.loads(content[8:end])
    assert end % 8 == 0 and table.pop("__metadata__") == {"format": "pt"}
    spans = sorted(entry["data_offsets"] for entry in table.values())
    assert [0, *(stop for _, stop in spans)] == [*(start for start, _ in spans), len(content) - end]
    weight = trainee.model[0].weight
    entry = table["model.0.weight"]
    assert (entry["dtype"], entry["shape"]) == ("F32", [*weight.shape])
    start, stop = entry["data_offsets"]
    rows = torch.frombuffer(bytearray(content[end + start : end + stop]), dtype=torch.float32)
    saved = mf.load(tmp_path)["model"]["0.weight"]
    assert torch.equal(rows.view(weight.shape), saved)
    assert saved.stride() == weight.stride() != saved.contiguous().stride()


@pytest.mark.parametrize("dtype", [torch.complex128, torch.bfloat16, torch.bool, torch.uint16])
def test_every_kind_of_number_comes_back(tmp_path: Path, dtype: torch.dtype) -> None:
    with mf.join() as job:
        job.state.item = given = torch.arange(7).to(dtype)
        job.state.empty = torch.empty(0, 3)
        checkpoint_folder.write(tmp_path, job._session.capture(), {"step": 1})
    assert same_bits(mf.load(tmp_path).state["item"], given)
    assert mf.load(tmp_path).state["empty"].shape == (0, 3)


# --- damage ---------------------------------------------------------------------------------


def flip(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def truncate(path: Path, chance: random.Random) -> None:
    os.truncate(path, chance.randrange(path.stat().st_size))


@pytest.mark.parametrize("damage", [flip, truncate, lambda path, _: path.unlink()])
def test_a_damaged_one_is_named_and_the_one_before_is_used(
    tmp_path: Path, damage: Callable[[Path, random.Random], None], capfd: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path, 4, keep=2)
    newest = checkpoint_folder.entries(tmp_path)[0].path
    (tensors,) = tmp_path.glob(f"{newest.stem}-*.safetensors")
    for seed in range(40):
        path = (newest, tensors)[seed % 2]
        if path == newest and damage not in (flip, truncate):
            continue  # without a manifest there is no checkpoint
        good = path.read_bytes()
        damage(path, random.Random(seed))
        assert mf.load(tmp_path).step == 2
        path.write_bytes(good)
        assert path.name in _said(capfd, "the checkpoint before it is used")
    assert mf.load(tmp_path).step == 4


def _said(capfd: pytest.CaptureFixture[str], what: str) -> str:
    from midflight import terminal

    terminal.drain()
    lines = capfd.readouterr().err
    assert what in lines
    return str(lines)


def test_where_none_is_whole_training_does_not_begin_anew(tmp_path: Path) -> None:
    train(tmp_path, 4)
    for path in tmp_path.glob("*.safetensors"):
        path.write_bytes(b"")
    with (
        pytest.raises(StateError, match="none of the 2 checkpoints"),
        Trainee().join(resume=tmp_path),
    ):
        pass


def test_another_model_is_told_from_a_damaged_file(tmp_path: Path) -> None:
    train(tmp_path, 2)
    with pytest.raises(StateError, match=r"step-2\.json: .*carries"), mf.join(resume=tmp_path):
        pass


# --- a crash while it is written ------------------------------------------------------------

WRITER = """
import os, random, resource, signal, sys
from pathlib import Path
import torch
from midflight.runtime.state import checkpoint_folder
from midflight.runtime.state.holdings import Holdings

folder, seed = Path(sys.argv[1]), int(sys.argv[2])
chance = random.Random(seed)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
checkpoint_folder.CHUNK = 1 << 10

def write(step):
    state = Holdings({"model": torch.nn.Linear(40, 40)}, {"step": step})
    where = {"step": step, "epoch": 0, "position": 0, "generation": 0}
    checkpoint_folder.write(folder, state.capture(where), where)
    checkpoint_folder.prune(folder, 2)

def killed_at(call):  # the one of so many calls to the system
    left = call
    def counted(real):
        def called(*words, **more):
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*words, **more)
        return called
    for name in ("open", "fsync", "fchmod", "unlink", "replace", "rename", "write", "close"):
        setattr(os, name, counted(getattr(os, name)))

write(1)
size = max(path.stat().st_size for path in folder.iterdir())
for attempt in range(int(sys.argv[3])):
    pid = os.fork()
    if pid == 0:
        if attempt % 2:
            killed_at(attempt // 2)
        else:  # the kernel ends whoever writes beyond this byte
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            at = chance.randrange(size)
            resource.setrlimit(resource.RLIMIT_FSIZE, (at, at))
        write(attempt + 2)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    print(os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, flush=True)
    sys.stdin.readline()
"""


def test_a_kill_at_any_byte_leaves_the_last_good_one(tmp_path: Path) -> None:
    attempts = 60
    folder = tmp_path / "kept"
    words = [sys.executable, "-c", WRITER, str(folder), "7", str(attempts)]
    last, ends = 1, []
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as writer:
        assert writer.stdin is not None and writer.stdout is not None
        try:
            for attempt in range(attempts):
                ends.append(int(writer.stdout.readline()))
                found = checkpoint.load(folder)
                assert found.state == {"step": found.step}  # and its checksums are right
                assert found.step in (last, attempt + 2)
                assert ends[-1] or found.step == attempt + 2
                last = found.step
                writer.stdin.write("\n")
        finally:
            writer.kill()
    assert ends.count(signal.SIGXFSZ) == attempts // 2
    assert signal.SIGKILL in ends and 0 in ends


# --- a folder that takes nothing ------------------------------------------------------------


@pytest.fixture
def no_room() -> Iterator[Callable[[bool], None]]:
    """A disk that is full from some byte on, for this process."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(full: bool) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, before[1]) if full else before)

    yield fill
    fill(False)


def test_a_full_disk_is_warned_of_once_and_training_goes_on(
    tmp_path: Path, no_room: Callable[[bool], None], capfd: pytest.CaptureFixture[str]
) -> None:
    trainee = Trainee()
    with trainee.join() as job:
        job.checkpoints(tmp_path, every=1)
        for batch in job.batches(range(SAMPLES), global_batch_size=2, epochs=2):
            no_room(job.step_number in range(3, 8))
            trainee.step(job, batch)
            await_written(job)
        no_room(False)
    said = _said(capfd, "could not be written")
    assert said.count("could not be written") == 1
    assert "File too large; training goes on" in said
    assert "has taken the checkpoint" in said
    assert steps_in(tmp_path)[0] == 12
    assert len(list(tmp_path.iterdir())) == 6


@pytest.mark.parametrize("folder", ["file/kept", "/sys"])
def test_so_is_a_folder_that_cannot_be_written_in(
    tmp_path: Path, folder: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not even by root, as it is no folder, or the system's own."""
    (tmp_path / "file").touch()
    trainee = Trainee()
    with trainee.join() as job:
        job.checkpoints(tmp_path / folder, every=1)
        for batch in job.batches(range(SAMPLES), global_batch_size=2, epochs=1):
            trainee.step(job, batch)
            await_written(job)
        assert job.step_number == 6
    assert _said(capfd, "training goes on without it").count("could not be written") == 1


# --- when -----------------------------------------------------------------------------------


def test_an_interval_is_a_number_of_steps_or_a_time() -> None:
    steps, time = Interval.of(10), Interval.of("1h30m")
    assert [steps.is_over((4, step), 1e9) for step in (5, 9, 10, 11)] == [False, False, True, True]
    assert not time.is_over((4, 5), 5399.0) and time.is_over((4, 5), 5400.0)
    assert not time.is_over((5, 5), 1e9)  # there is nothing new
    for wrong in (0, -1, "0s", "soon"):
        with pytest.raises(UsageError, match="wanted"):
            Interval.of(wrong)


def test_checkpoints_are_asked_for_once(tmp_path: Path) -> None:
    with mf.join() as job:
        job.checkpoints(tmp_path)
        with pytest.raises(UsageError, match="call it once"):
            job.checkpoints(tmp_path)
        with pytest.raises(UsageError, match="at least 1"), mf.join() as other:
            other.checkpoints(tmp_path, keep=0)


def test_one_that_is_due_while_another_is_written_waits_for_it(tmp_path: Path) -> None:
    """The pause is one copy, never a wait for the disk."""
    import threading

    trainee, go_on = Trainee(), threading.Event()
    with trainee.join() as job:
        job.checkpoints(tmp_path, every=1)
        batches = job.batches(range(SAMPLES), global_batch_size=2, epochs=2)
        for batch in batches:
            trainee.step(job, batch)
            await_written(job)
            if job.step_number == 3:
                break
        held = job._session.checkpoints
        assert held is not None
        held._begin(lambda: go_on.wait(60.0))
        for batch in batches:
            trainee.step(job, batch)
            if job.step_number == 6:
                go_on.set()
                await_written(job)
            if job.step_number == 7:
                await_written(job)
                break
    assert steps_in(tmp_path)[:2] == [7, 6]


def test_a_state_that_grows_in_every_step_is_kept_as_well(tmp_path: Path) -> None:
    trainee = Trainee()
    with trainee.join() as job:
        job.checkpoints(tmp_path, every=2)
        for batch in job.batches(range(SAMPLES), global_batch_size=2, epochs=1):
            trainee.step(job, batch)
            job.state.losses = [torch.ones(1) for _ in range(job.step_number)]
            await_written(job)
    assert steps_in(tmp_path)[0] == 6
    assert len(mf.load(tmp_path).state["losses"]) == 6


def test_where_there_is_no_memory_for_a_copy_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("you tried to allocate 8 TiB")

    monkeypatch.setattr(room, "host_room", refuse)
    trainee = Trainee()
    with trainee.join() as job:
        job.checkpoints(tmp_path, every=2)
        for batch in job.batches(range(SAMPLES), global_batch_size=2, epochs=1):
            trainee.step(job, batch)
        assert job.step_number == 6
    assert _said(capfd, "there is no memory for a copy").count("8 TiB") == 1
    assert steps_in(tmp_path) == [6]  # the last state is written as it lies


class Disk:
    """A writer's thread whose disk takes so much at a time, and nothing after that."""

    def __init__(self, held: Checkpoints, *takes: int) -> None:
        self._held = held
        self._takes = [*takes]
        self.waits = 0

    def is_alive(self) -> bool:
        return True

    def join(self, seconds: float) -> None:
        assert seconds == END_SECONDS
        self.waits += 1
        if self._takes:
            self._held._note_written(self._takes.pop(0))


def test_a_checkpoint_is_waited_for_at_the_end_as_long_as_anything_is_written(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    held = Checkpoints(tmp_path, Interval.of(1), 3)
    disk = Disk(held, 1 << 30, 1, 1 << 30)
    held._thread = disk  # type: ignore[assignment]
    held.close()
    assert disk.waits == 4
    assert "has taken nothing of a checkpoint for 600 s" in _said(capfd, str(tmp_path))
    held.close()
    assert disk.waits == 4, "it has been given up"


def test_what_is_given_up_is_no_checkpoint_even_if_the_disk_comes_back(tmp_path: Path) -> None:
    """The script may be changing the weights by then."""
    held = Checkpoints(tmp_path, Interval.of(1), 3)
    held._thread = Disk(held)  # type: ignore[assignment]
    held.close()
    with mf.join(model=Trainee().model) as job:
        held._write(job._session.capture(), {"step": 1})
    assert [*tmp_path.iterdir()] == []


def test_what_is_written_at_the_end_counts_as_progress(tmp_path: Path) -> None:
    """Else a member that writes for long would look like one that hangs."""
    trainee = Trainee()
    with trainee.join() as job:
        job.checkpoints(tmp_path, every=100)
        for batch in job.batches(range(SAMPLES), global_batch_size=2, epochs=1):
            trainee.step(job, batch)
        before = bytes_moved()
    assert steps_in(tmp_path) == [6]
    written = max(path.stat().st_size for path in tmp_path.iterdir())
    assert bytes_moved() - before == written


def test_the_bytes_on_the_disk_grow_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_folder, "CHUNK", 64)
    monkeypatch.setattr(checkpoint_folder, "SYNCED", 128)
    told: list[tuple[int, int]] = []

    def tell(nbytes: int) -> None:
        (tensors,) = tmp_path.glob("*.safetensors")
        told.append((nbytes, tensors.stat().st_size))

    with mf.join(model=torch.nn.Linear(40, 40)) as job:
        checkpoint_folder.write(tmp_path, job._session.capture(), {"step": 1}, tell)
    size = sum(nbytes for nbytes, _ in told)
    assert told[-1] == (0, size)
    behind = [sum(n for n, _ in told[: at + 1]) - there for at, (_, there) in enumerate(told)]
    header = told[0][0]
    assert max(behind) <= max(header, 128 + 64)
    assert mf.load(tmp_path).path.name == "000001-step-1.json"


def test_a_state_that_cannot_be_packed_ends_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    trainee = Trainee()
    with trainee.join() as job:
        job.checkpoints(tmp_path, every=1)
        for batch in job.batches(range(SAMPLES), global_batch_size=2, epochs=1):
            job.state.strange = object()
            trainee.step(job, batch)
    assert _said(capfd, "cannot be kept").count("warning") == 1
