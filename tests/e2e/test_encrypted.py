"""A run with --tls: nothing but torch's own traffic can be read between its processes."""

import socket
from pathlib import Path

import pytest

from midflight.protocol.handshake import answer_challenge, check_challenge
from midflight.protocol.messages import Hello, Refused
from midflight.protocol.wire import SyncWire, split_address
from tests.e2e.runs import Run, by_rank, check_complete, kill, ranked

pytestmark = pytest.mark.slow
FLAGS = ("--tls", "--min-np", "1", "--max-np", "6", "--cooldown", "60", "60")


def test_an_encrypted_job_grows_loses_a_member_and_shrinks(tmp_path: Path) -> None:
    with Run(tmp_path, *FLAGS, np=2) as run:
        run.await_stable(2, beyond=3)
        assert run.resize("--to", "4").returncode == 0
        before = run.await_stable(4, beyond=3)
        kill(by_rank(before, 1))
        run.await_status(lambda s: s["phase"] == "stable" and len(ranked(s)) == 3)
        assert run.resize("--to", "2").returncode == 0
        run.await_stable(2)
        assert run.finish() == 0
        check_complete(run)


def test_whoever_does_not_encrypt_is_refused_although_he_knows_the_token(tmp_path: Path) -> None:
    with Run(tmp_path, *FLAGS, np=2) as run:
        run.await_stable(2, beyond=3)
        token = run.folder.read_token()
        with socket.create_connection(split_address(run.folder.read_address() or ""), 10) as sock:
            wire = SyncWire(sock)
            challenge = check_challenge(wire.receive())
            assert challenge.tls
            unproven = Hello(challenge.version, "client", "clear", "nonce", "")
            wire.send(answer_challenge(challenge, unproven, token).hello)
            assert isinstance(wire.receive(), Refused)
        run.await_line("refused a connection from .* could not be encrypted")
        assert run.finish() == 0
