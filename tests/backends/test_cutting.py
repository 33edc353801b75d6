"""Cutting another process's connections, on real sockets."""

import os
import socket
import subprocess
import sys

import pytest

from midflight.backends.local.chaos import cut, cut_between

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


LISTENER = """
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
there = listener.accept()[0]
print("read", repr(there.recv(10)), flush=True)
sys.stdin.read()
"""
TWO_LINES = """
import socket, sys
other, test = (socket.create_connection(("127.0.0.1", int(port))) for port in sys.argv[1:])
again = other.dup()
print("read", repr(other.recv(10)), flush=True)
test.sendall(b"still there")
sys.stdin.read()
"""


def started(code: str, *words: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_between_two_processes_only_what_connects_them_is_cut() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, started(LISTENER) as listener:
        server.settimeout(60)
        mine = server.getsockname()[1]
        with started(TWO_LINES, line(listener), mine) as dialler, server.accept()[0] as here:
            here.settimeout(60)
            assert cut_between(dialler.pid, listener.pid) == 1
            assert line(dialler) == line(listener) == "read b''"
            assert here.recv(20) == b"still there"
            for process in (dialler, listener):
                assert process.stdin is not None
                process.stdin.close()


def test_a_process_that_is_gone_has_nothing_to_cut() -> None:
    process = subprocess.Popen(["true"])
    process.wait(60)
    assert cut(process.pid) == 0
    assert cut_between(process.pid, os.getpid()) == 0
