"""Bad input to real runs: one clear line, an exit code, nothing left over, and nobody disturbed.

What a command line may not say is tested in tests/run and tests/cli; here is what shows only once
processes run, or while others are training.
"""

import contextlib
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from midflight.protocol.handshake import VERSION, answer_challenge, check_challenge
from midflight.protocol.messages import Hello, Refused
from midflight.protocol.wire import SyncWire, dial_blocking
from midflight.rundir import RunDir
from tests.e2e.runs import PATIENCE, Run, check_complete, ranked

pytestmark = pytest.mark.slow
SCRIPTS = Path(__file__).with_name("scripts")
FLAGS = ("--min-np", "2", "--max-np", "3", "--cooldown", "60", "60")
GIGABYTE = struct.pack(">I", 1 << 30)


def complaints(run: Run) -> list[str]:
    return [line for line in run.lines if line.startswith("midflight: error:")]


def refused(run: Run, *words: str) -> None:
    """The run ends with exit code 1 and one line that holds these words."""
    assert run.wait() == 1
    (line,) = complaints(run)
    for word in words:
        assert word in line
    assert run.left_over() == []


# --- a job that comes to nothing ------------------------------------------------------------


def test_a_store_that_cannot_be_reached_is_said_before_anything_is_started(tmp_path: Path) -> None:
    with Run(tmp_path, "--store", "etcd://127.0.0.1:1") as run:
        refused(run, "etcd", "127.0.0.1:1")
        assert len(run.lines) == 1


def test_a_discovery_script_that_hangs_is_given_up(tmp_path: Path) -> None:
    with Run(tmp_path, "--host-discovery-script", "sleep 600") as run:
        refused(run, "'sleep 600'", "did not end within 10 s")
        assert len(run.lines) == 1


def test_a_dataset_smaller_than_the_world_is_refused(tmp_path: Path) -> None:
    with Run(tmp_path, script=["python", str(SCRIPTS / "tiny_data.py")]) as run:
        refused(run, "the dataset has 2 samples, the world has 3 members")
        assert run.output.count("Traceback") == 1


def odd_model(tmp_path: Path, *members: str) -> list[str]:
    return ["python", str(SCRIPTS / "odd_model.py"), str(tmp_path / "out"), *members]


def test_a_model_that_differs_between_members_is_named_at_the_start(tmp_path: Path) -> None:
    with Run(tmp_path, *FLAGS, script=odd_model(tmp_path, "m1"), np=2) as run:
        refused(run, "parameter '0.weight' is float32[5, 3] here and float32[4, 3] on the others")


def test_a_newcomer_with_another_model_is_sent_away_and_nobody_notices(tmp_path: Path) -> None:
    with Run(tmp_path, *FLAGS, script=odd_model(tmp_path, "m2"), np=2) as run:
        run.await_stable(2, beyond=3)
        answer = run.resize("--to", "3")
        assert answer.returncode == 1
        assert "parameter '0.weight' is float32[5, 3] here" in answer.stderr
        after = run.progress()
        assert (after["resets"], len(ranked(after))) == (0, 2)
        assert run.finish() == 0
        assert run.left_over() == []


def test_an_exception_in_a_rehearsal_reaches_the_user_as_itself(tmp_path: Path) -> None:
    script = ["python", str(SCRIPTS / "odd_step.py"), str(tmp_path / "out"), "1", "m2"]
    with Run(tmp_path, *FLAGS, script=script, np=2) as run:
        run.await_stable(2, beyond=3)
        answer = run.resize("--to", "3")
        assert answer.returncode == 1
        assert "LookupError: no such column: label" in answer.stderr
        assert run.await_line("LookupError: no such column: label")
        assert "cannot join thread" not in run.output
        after = run.progress()
        assert (after["resets"], len(ranked(after))) == (0, 2)
        assert run.finish() == 0
        assert run.left_over() == []


def test_an_exception_in_the_first_step_of_a_larger_world_is_the_answer_and_undoes_it(
    tmp_path: Path,
) -> None:
    script = ["python", str(SCRIPTS / "odd_step.py"), str(tmp_path / "out"), "2", "m2"]
    with Run(tmp_path, *FLAGS, script=script, np=2) as run:
        run.await_stable(2, beyond=3)
        answer = run.resize("--to", "3")
        assert answer.returncode == 1
        assert "LookupError: no such column: label; the resize was undone" in answer.stderr
        after = run.progress()
        assert (after["wanted"], len(ranked(after)), after["resets"]) == (2, 2, 1)
        assert run.finish() == 0
        assert run.left_over() == []


def test_a_state_that_cannot_be_handed_over_fails_the_request_and_nobody_notices(
    tmp_path: Path,
) -> None:
    script = ["python", str(SCRIPTS / "uneven.py"), str(tmp_path / "out"), "object"]
    with Run(tmp_path, *FLAGS, script=script, np=2) as run:
        run.await_stable(2, beyond=6)
        answer = run.resize("--to", "3")
        assert answer.returncode == 1
        assert "job.state.writer: a value of type object cannot be handed" in answer.stderr
        assert "keep numbers, strings, lists" in answer.stderr
        after = run.progress()
        assert (after["resets"], len(ranked(after))) == (0, 2)
        assert run.finish() == 0
        assert run.left_over() == []


def test_a_discovery_script_that_fails_later_is_a_warning(tmp_path: Path) -> None:
    listing = tmp_path / "hosts"
    listing.write_text("echo localhost:2")
    flags = ("--host-discovery-script", f". {listing}", "--min-np", "2")
    with Run(tmp_path, *flags, np=2) as run:
        run.await_stable(2, beyond=3)
        listing.write_text("echo no host, but rubbish")
        run.await_line("warning: .* printed something other than hosts")
        listing.write_text("exit 3")
        after = run.progress()
        assert (after["resets"], after["generation"]) == (0, 1)
        assert run.finish() == 0
        check_complete(run)


# --- a job that does not care ---------------------------------------------------------------


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A job that all the tests below try to disturb, and that ends as if nobody had."""
    with Run(tmp_path_factory.mktemp("training"), *FLAGS, np=2) as run:
        run.await_stable(2, beyond=3)
        yield run
        status = run.status()
        assert (status["resets"], status["generation"]) == (0, 1)
        assert run.finish() == 0
        check_complete(run)


@contextlib.contextmanager
def stranger(run: Run) -> Iterator[socket.socket]:
    """A connection to the coordinator of somebody who does not know the secret."""
    host, port = (RunDir.of("job", run.env).read_address() or "").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as sock:
        yield sock


def pour(sock: socket.socket, most: int = 1 << 30) -> int:
    """Send zeros until the other side has had enough; how many it took."""
    sent, block = 0, bytes(1 << 16)
    with contextlib.suppress(ConnectionError):
        while sent < most:
            sent += sock.send(block)
    return sent


def read_to_the_end(sock: socket.socket) -> bytes:
    parts = b""
    with contextlib.suppress(ConnectionError):
        while part := sock.recv(1 << 16):
            parts += part
    return parts


@pytest.mark.parametrize(
    "rubbish",
    [
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
        b"\x00\x00\x00\x05hello",
        b"\x00\x00\x00\x02[]",
        struct.pack(">I", 4000) + b"[" * 4000,
        b"\xff" * 100,
    ],
    ids=["http", "no json", "no message", "nested", "ones"],
)
def test_garbage_is_refused_and_training_goes_on(training: Run, rubbish: bytes) -> None:
    with stranger(training) as sock:
        sock.sendall(rubbish)
        sock.shutdown(socket.SHUT_WR)
        where = f"127.0.0.1:{sock.getsockname()[1]}"
        said = read_to_the_end(sock)
    training.await_line(f"warning: refused a connection from {where}: .+")
    token = RunDir.of("job", training.env).read_token()
    assert token not in said
    training.progress()


def test_a_stranger_who_hangs_up_without_a_word_is_no_news(training: Run) -> None:
    with stranger(training) as sock:
        sock.shutdown(socket.SHUT_WR)
        where = f"127.0.0.1:{sock.getsockname()[1]}"
        said = read_to_the_end(sock)
    assert RunDir.of("job", training.env).read_token() not in said
    training.progress()
    assert not [line for line in training.lines if where in line]


def test_a_gigabyte_of_a_stranger_is_not_read(training: Run) -> None:
    with stranger(training) as sock:
        sock.sendall(GIGABYTE)
        assert pour(sock) < 64 << 20  # what fits in the buffers on the way
    training.await_line("refused .*a frame of 1073741824 bytes was announced, more than 4096")
    training.progress()


def test_a_gigabyte_of_a_friend_is_not_read_either(training: Run) -> None:
    folder = RunDir.of("job", training.env)
    wire = dial_blocking(folder.read_address() or "", "client", "big", folder.read_token())
    with wire.sock as sock:
        sock.sendall(GIGABYTE)
        assert pour(sock) < 64 << 20
    training.await_line("closed the connection of client big: a frame of 1073741824 bytes")
    training.progress()


def test_another_version_of_the_protocol_is_refused_with_both_numbers(training: Run) -> None:
    token = RunDir.of("job", training.env).read_token()
    with stranger(training) as sock:
        wire = SyncWire(sock)
        hello = answer_challenge(
            check_challenge(wire.receive()), Hello(VERSION, "member", "m9", "nonce", ""), token
        ).hello
        wire.send(type(hello)(99, hello.role, hello.name, hello.nonce, hello.proof))
        answer = wire.receive()
    assert isinstance(answer, Refused)
    assert f"protocol version {VERSION}, the other 99" in answer.reason
    training.await_line(f"refused a connection .* version {VERSION}, the other 99; run the same")
    training.progress()


def test_an_agent_with_another_token_is_refused_and_told_nothing(
    training: Run, tmp_path: Path
) -> None:
    folder = RunDir.of("job", training.env)
    wrong = tmp_path / "token"
    wrong.touch(0o600)
    wrong.write_text("0" * 64 + "\n")
    began = time.monotonic()
    agent = subprocess.run(
        [sys.executable, "-m", "midflight.agent", "--join", folder.read_address() or "",
         "--token-file", str(wrong), "--name", "intruder", "--slots", "9"],
        env=training.env, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert agent.returncode == 1
    assert time.monotonic() - began < 20
    assert agent.stderr.count("\n") == 1 and "the token does not match" in agent.stderr
    secret = folder.read_token().decode()
    assert secret not in agent.stderr and secret not in training.output
    training.await_line("warning: refused a connection from .*the token does not match")
    assert [host["name"] for host in training.progress()["hosts"]] == ["localhost"]


@pytest.mark.parametrize(
    ("wish", "complaint"),
    [
        (("--to", "4"), "4 members would be more than --max-np 3"),
        (("--to", "1"), "1 member would be fewer than --min-np 2"),
        (("--add", "2"), "4 members would be more than --max-np 3"),
        (("--remove", "2"), "0 members would be fewer than --min-np 2"),
        (("--remove-member", "nobody"), "no member is named 'nobody'; there are m0, m1"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_resize_that_cannot_be_is_refused(
    training: Run, wish: tuple[str, ...], complaint: str
) -> None:
    answer = training.resize(*wish)
    assert answer.returncode == 1
    assert answer.stdout == ""
    assert answer.stderr == f"midflight: error: {complaint}\n"
