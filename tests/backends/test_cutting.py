"""Cutting another process's connections, on real sockets."""

import socket
import subprocess
import sys

import pytest

from midflight.backends.local.chaos import cut

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems offer no way")

DIALLER = """
import socket, sys
one = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
listener = socket.create_server(("127.0.0.1", 0))
one.sendall(b"hello")
print("read", repr(one.recv(10)), flush=True)
again = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print("dialled again", flush=True)
sys.stdin.read()
"""


def test_both_ends_see_the_break_and_a_new_connection_works() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        words = [sys.executable, "-c", DIALLER, str(server.getsockname()[1])]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None and process.stdout is not None
            with server.accept()[0] as here:
                here.settimeout(60)
                assert here.recv(5) == b"hello"
                assert cut(process.pid) == 1
                assert here.recv(5) == b""
                assert process.stdout.readline() == b"read b''\n"
                with server.accept()[0]:
                    assert process.stdout.readline() == b"dialled again\n"
                    process.stdin.close()
        assert process.returncode == 0


def test_a_process_that_is_gone_has_nothing_to_cut() -> None:
    process = subprocess.Popen(["true"])
    process.wait(60)
    assert cut(process.pid) == 0
