"""Processes of containers: started in namespaces of their own, or in those of a running one.

A container's command is process 1 of its namespace, as in any container: a SIGTERM that it does not
handle is ignored, and whatever it started dies with it. It dies with its node in turn, because it
asks the kernel for that. All of this is done by the thread that runs the node, and by no other:
the kernel binds a child to the thread that forked it.
"""

import fcntl
import os
import select
import signal
import socket
import termios
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

from tests.kubernetes.plane import sandbox
from tests.kubernetes.plane.descriptors import readable
from tests.kubernetes.plane.sandbox import Room, check, libc

_NEWUTS, _NEWIPC, _NEWPID = 0x04000000, 0x08000000, 0x20000000
_SET_PARENT_DEATH_SIGNAL = 1
CANNOT_START = 128  # the status of a container that could not be set up
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
_NICE = 5  # so that a busy pod does not make its node look lost
_alive = os.pipe()  # its writing end closes when the node dies, and not before


@dataclass(frozen=True)
class Program:
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str = "/"


@dataclass(frozen=True)
class Streams:
    """Descriptors for the child's 0, 1 and 2; with a terminal, all three are that terminal."""

    stdin: int
    stdout: int
    stderr: int
    terminal: bool = False
    complaints: int = 2  # where it is told why the program could not be started


def start(room: Room, program: Program, streams: Streams) -> tuple[int, int]:
    """The id, as seen from here, of process 1 of a new container, and a descriptor.

    That one ends when the program has begun; what can be read from it before is why it has not.
    """
    news, telling = os.pipe()

    def settle() -> None:
        check(libc.unshare(_NEWUTS | _NEWIPC), "unshare")
        sandbox.keep_mounts_to_oneself()
        socket.sethostname(room.hostname[:63])
        sandbox.move_in(room)

    def new_ids() -> None:
        check(libc.unshare(_NEWPID), "unshare")

    try:
        return _fork(new_ids, settle, program, replace(streams, complaints=telling)), news
    finally:
        os.close(telling)


def join(container: int, program: Program, streams: Streams) -> int:
    """A further process beside process 1, `container`, of a running one."""
    target = os.pidfd_open(container)

    def same_ids() -> None:
        check(libc.setns(target, _NEWPID), "setns")

    def settle() -> None:
        check(libc.setns(target, sandbox.NEWNS | _NEWUTS | _NEWIPC), "setns")

    try:
        return _fork(same_ids, settle, program, streams)
    finally:
        os.close(target)


async def ended(pid: int) -> int:
    """Waits for a child; its exit status as a shell has it, 128 + N for signal N."""
    descriptor = os.pidfd_open(pid)
    try:
        await readable(descriptor)
    finally:
        os.close(descriptor)
    return _reap(pid)


def _reap(pid: int) -> int:
    """Of one that has ended."""
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return 128 - code if code < 0 else code


def _fork(
    choose_ids: Callable[[], None],
    settle: Callable[[], None],
    program: Program,
    streams: Streams,
) -> int:
    """`choose_ids` says in which namespace of process ids the next child begins."""
    own = os.open("/proc/self/ns/pid", os.O_RDONLY)
    try:
        choose_ids()
        pid = os.fork()
        if pid == 0:
            _become(settle, program, streams)
        return pid
    finally:
        check(libc.setns(own, _NEWPID), "setns")
        os.close(own)


def _become(settle: Callable[[], None], program: Program, streams: Streams) -> NoReturn:
    """In the child: never returns, and never runs anything of the node's again."""
    status = CANNOT_START
    try:
        _let_go_of_the_node()
        _take(streams)
        settle()
        os.chdir(program.cwd)
        status = _NOT_EXECUTABLE
        os.execvpe(program.argv[0], program.argv, dict(program.env))
    except FileNotFoundError:
        status = _NOT_FOUND if status == _NOT_EXECUTABLE else status
        os.write(streams.complaints, f"{program.argv[0]}: not found".encode())
    except BaseException as error:  # noqa: BLE001 - the child must never go on as a node
        os.write(streams.complaints, f"{program.argv[0]}: {error}".encode())
    finally:
        os._exit(status)


def _let_go_of_the_node() -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    os.close(_alive[1])
    libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if select.select([_alive[0]], [], [], 0)[0]:  # it died before the signal was asked for
        os._exit(CANNOT_START)
    os.setsid()
    os.nice(_NICE)


def _take(streams: Streams) -> None:
    for number, descriptor in enumerate((streams.stdin, streams.stdout, streams.stderr)):
        os.dup2(descriptor, number)
    if streams.terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
