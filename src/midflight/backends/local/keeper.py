"""The keeper: the parent of one instance, which outlives the server and writes down what happens.

`python -I -S keeper.py FOLDER` runs what FOLDER/plan.json says, once for each attempt: it holds
FOLDER/keeper.lock, writes FOLDER/state.json before, while and after the instance runs, and puts
its output in FOLDER/log. SIGTERM and SIGUSR2 ask the instance to end (FOLDER/grace may say within
how many seconds; a second SIGTERM does not wait), SIGUSR1 kills it. Whatever way the first process
ends, nothing that it has started stays. It imports nothing of Midflight, and little of the
standard library (typing would cost more than all the rest), so that it starts at once.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

MARK = "MIDFLIGHT_INSTANCE_MARK"
CANNOT_WRITE, BUSY, DONE_BEFORE, BAD_PLAN = 3, 4, 5, 6  # exit codes: nothing was started
LINUX = sys.platform == "linux"
LONGEST_PART = 16 << 10
READ = 64 << 10
EXEC_SECONDS = 20.0
DRAIN_SECONDS = 2.0
CLEAR_SECONDS = 10.0  # for what does not die of SIGKILL, because the kernel does not let it go
RETRY_SECONDS = 1.0
IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)


def stat_fields(pid: int) -> list[str]:
    """/proc/PID/stat from its third field on; OSError if there is no such process."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()  # the name before it may hold anything


def start_time(pid: int) -> str:
    """With the pid, what tells one process from all others since the boot; "" if there is none."""
    if not LINUX:
        with os.popen(f"ps -ww -o lstart= -p {int(pid)}") as answer:
            return answer.read().strip()
    try:
        return stat_fields(pid)[19]
    except (OSError, IndexError):
        return ""


def processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()] if LINUX else []


def carries(pid: int, mark: str) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return f"{MARK}={mark}".encode() in file.read().split(b"\0")
    except OSError:  # somebody else's process, or none any more
        return False


def marked(mark: str) -> list[int]:
    """Who carries this mark, itself aside; nobody where /proc does not tell."""
    return [pid for pid in processes() if mark and pid != os.getpid() and carries(pid, mark)]


def children() -> dict[int, list[int]]:
    """Of every process."""
    found: dict[int, list[int]] = {}
    for pid in processes():
        try:
            found.setdefault(int(stat_fields(pid)[1]), []).append(pid)
        except (OSError, IndexError):  # gone meanwhile
            continue
    return found


def descendants() -> list[int]:
    """Children of this process, then theirs, and so on."""
    table = children()
    found = list(table.get(os.getpid(), ()))
    for pid in found:  # it grows meanwhile
        found += table.get(pid, ())
    return found


def send(pid: int, *numbers: int, group: bool = False) -> None:
    for number in numbers if pid > 1 else ():
        try:
            (os.killpg if group else os.kill)(pid, number)
        except OSError:  # gone already
            return


def control(option: int, value: int) -> None:
    """prctl, which only Linux has."""
    if LINUX:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def write_file(folder: str, name: str, text: str) -> None:
    """Readers see the old file or the new one, never a part; also after a power cut."""
    temporary = os.path.join(folder, f".{name}.{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, os.path.join(folder, name))
    except OSError:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read_json(folder: str, name: str) -> dict[str, Any]:
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        content: dict[str, Any] = json.load(file)
    return content


def attempt(call: Callable[..., None], *arguments: Any) -> None:
    """A disk that refuses this too must not end the keeper, and with it the instance."""
    try:
        call(*arguments)
    except OSError:
        return


def stamp() -> bytes:
    seconds, nanoseconds = divmod(time.time_ns(), 10**9)
    date = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{date}.{nanoseconds // 1000:06d}Z".encode()


class Stream:
    """Bytes in, log entries out: one for each line (F), or for a part of a very long one (P)."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        head = stamp() + b" " + self.name
        entries = []
        for line in (self.rest + data).split(b"\n"):
            while len(line) > LONGEST_PART:
                entries.append(b"%s P %s\n" % (head, line[:LONGEST_PART]))
                line = line[LONGEST_PART:]
            entries.append(b"%s F %s\n" % (head, line))
        entries.pop()  # that one goes on
        self.rest = line
        return entries

    def end(self) -> list[bytes]:
        """The last line may lack its end; the empty entry keeps the next attempt's off it."""
        head, rest, self.rest = stamp() + b" " + self.name, self.rest, b""
        return [b"%s P %s\n" % (head, rest), b"%s F \n" % head] if rest else []


class Log:
    """Appends whole entries and rotates by size. What cannot be written is counted, and said."""

    def __init__(self, path: str, most: int, files: int) -> None:
        self.path = path
        self.most = most
        self.names = [path, *(f"{path}.{number}" for number in range(1, max(files, 2)))]
        self.descriptor = -1
        self.size = 0
        self.lost = 0

    def add(self, entries: list[bytes]) -> None:
        if self.lost:
            note = "%s stderr F … %d lines lost: the log could not be written\n"
            data = (note % (stamp().decode(), self.lost)).encode()
            if self.put(data) < len(data):
                self.lost += len(entries)
                return
            self.lost = 0
        pending: list[bytes] = []
        size = self.size
        for entry in entries:
            if size and size + len(entry) > self.most:
                self.flush(pending)
                self.rotate()
                pending, size = [], 0
            pending.append(entry)
            size += len(entry)
        self.flush(pending)

    def flush(self, entries: list[bytes]) -> None:
        data = b"".join(entries)
        self.lost += data.count(b"\n", self.put(data))

    def put(self, data: bytes) -> int:
        """How much of it was written: all, or the whole lines for which there was room."""
        done = 0
        try:
            if self.descriptor < 0:
                self.open()
            while done < len(data):
                done += os.write(self.descriptor, memoryview(data)[done:])
        except OSError:
            done = data.rfind(b"\n", 0, done) + 1
            attempt(os.ftruncate, self.descriptor, self.size + done)
        self.size += done
        return done

    def open(self) -> None:
        self.descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self.size = os.fstat(self.descriptor).st_size
        if self.size and os.pread(self.descriptor, 1, self.size - 1) != b"\n":
            self.size += os.write(self.descriptor, b"\n")  # a keeper was killed while it wrote

    def rotate(self) -> None:
        for number in range(len(self.names) - 1, 0, -1):
            attempt(os.replace, self.names[number - 1], self.names[number])  # if there are so many
        attempt(os.close, self.descriptor)
        self.descriptor, self.size = -1, 0


class Keeper:
    def __init__(self, folder: str, plan: dict[str, Any]) -> None:
        self.folder = folder
        self.plan = plan
        self.log = Log(os.path.join(folder, "log"), plan["log_bytes"], plan["log_files"])
        self.streams: dict[int, Stream] = {}
        self.state: dict[str, Any] = {
            "attempt": plan["attempt"],
            "mark": plan["mark"],
            "cgroup": plan["limits"]["cgroup"],
            "boot": plan.get("boot", ""),
            "keeper_pid": os.getpid(),
            "keeper_start_time": start_time(os.getpid()),
        }
        self.unsaved = False
        self.child = 0
        self.code: int | None = None  # None: the first process still runs
        self.childless = False
        self.reason = ""
        self.stop_by: float | None = None  # None: nobody wants it to end
        self.killing_since: float | None = None
        self.asked: set[int] = set()
        control(36, 1)  # PR_SET_CHILD_SUBREAPER: orphans become our children
        self.wake, wakes = os.pipe()
        os.set_blocking(wakes, False)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)

    def save(self) -> bool:
        """Whether it is on the disk now; if not, it is tried again every second."""
        try:
            write_file(self.folder, "state.json", json.dumps(self.state))
            self.unsaved = False
        except OSError:
            self.unsaved = True
        return not self.unsaved

    def save_for_good(self) -> None:
        while not self.save() and os.path.isdir(self.folder):
            time.sleep(RETRY_SECONDS)

    def spawn(self) -> str:
        """Why it could not be started, "" if it runs."""
        outputs = [os.pipe(), os.pipe()]
        tell_read, tell_write = os.pipe()
        keeper = os.getpid()
        self.child = os.fork()
        if self.child == 0:
            become(self.plan, keeper, [write for _, write in outputs], tell_write)
        self.state["pid"] = self.child
        self.state["start_time"] = start_time(self.child)
        os.close(tell_write)
        for (read, write), name in zip(outputs, (b"stdout", b"stderr"), strict=True):
            os.close(write)
            self.streams[read] = Stream(name)
        ready = select.select([tell_read], [], [], EXEC_SECONDS)[0]
        late = f"it could not be started within {EXEC_SECONDS:g} s; is its folder reachable?"
        reason = os.read(tell_read, READ).decode(errors="replace") if ready else late
        os.close(tell_read)
        if reason:
            send(self.child, signal.SIGKILL)
        return reason

    def keep(self) -> None:
        """Until nobody of the instance is left."""
        while True:
            self.reap()
            now = time.monotonic()
            hopeless = self.killing_since is not None and now > self.killing_since + CLEAR_SECONDS
            if self.code is not None and (self.childless or hopeless):
                return
            self.press(now)
            self.listen(self.patience(now))

    def press(self, now: float) -> None:
        """Kill whoever has to go now, or ask those whose turn it is."""
        if self.killing_since is None and self.stop_by is not None and now >= self.stop_by:
            self.reason = "killed: it did not end in time"
            self.killing_since = now
        if self.killing_since is None and self.stop_by is None and self.code is not None:
            self.killing_since = now
        if self.killing_since is not None:
            if self.code is None:
                send(self.child, signal.SIGKILL, group=True)
            for pid in {*descendants(), *marked(self.plan["mark"])}:
                send(pid, signal.SIGKILL)
        elif self.code is not None:
            self.ask(children().get(os.getpid(), []))  # orphans of those who have ended

    def patience(self, now: float) -> float | None:
        """Seconds until something has to be done though nothing happens."""
        waits = [RETRY_SECONDS] if self.unsaved else []
        if self.killing_since is not None:
            waits.append(0.05)
        elif self.stop_by is not None:
            waits.append(max(0.0, self.stop_by - now))
        return min(waits, default=None)

    def reap(self) -> None:
        self.childless = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.childless = True
                return
            if pid == 0:
                return
            self.asked.discard(pid)
            if pid == self.child:
                self.code = os.waitstatus_to_exitcode(status)
                self.state["ended_at"] = time.time()
                if not LINUX and self.stop_by is None:  # where orphans do not come to us
                    send(pid, signal.SIGKILL, group=True)

    def ask(self, pids: list[int]) -> None:
        for pid in set(pids) - self.asked:
            self.asked.add(pid)
            send(pid, signal.SIGTERM, signal.SIGCONT)

    def listen(self, seconds: float | None) -> None:
        """Handle signals and output, as soon as there is some."""
        ready = select.select([self.wake, *self.streams], [], [], seconds)[0]
        if self.unsaved:
            self.save()
        for descriptor in ready:
            data = os.read(descriptor, READ)
            if descriptor == self.wake:
                for number in data:
                    self.obey(number)
            elif data:
                self.log.add(self.streams[descriptor].feed(data))
            else:
                self.log.add(self.streams.pop(descriptor).end())
                os.close(descriptor)

    def obey(self, number: int) -> None:
        now = time.monotonic()
        if number == signal.SIGUSR1 or (number == signal.SIGTERM and self.stop_by is not None):
            self.stop_by = now
            self.killing_since = self.killing_since or now
            self.reason = "killed"
        elif number in (signal.SIGTERM, signal.SIGUSR2):
            by = now + self.grace()
            self.stop_by = by if self.stop_by is None else min(by, self.stop_by)
            self.reason = self.reason or "stopped"
            if self.code is None:
                self.ask([self.child])  # it sees to its own children

    def grace(self) -> float:
        try:
            with open(os.path.join(self.folder, "grace"), encoding="utf-8") as file:
                return float(file.read())
        except (OSError, ValueError):
            return float(self.plan["grace"])

    def finish(self) -> None:
        deadline = time.monotonic() + DRAIN_SECONDS
        while self.streams and (left := deadline - time.monotonic()) > 0:
            self.listen(left)
        for stream in self.streams.values():  # somebody else holds the other end
            self.log.add(stream.end())
        self.state["code"] = self.code
        self.state["reason"] = self.reason
        self.save_for_good()
        self.log.add([])  # what was lost, if that could not be said before


def become(plan: dict[str, Any], keeper: int, outputs: list[int], tell: int) -> NoReturn:
    """In the child: turn into the program, or tell why not."""
    doing = "cannot start it"
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (*IGNORED, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        control(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != keeper:  # it died before the signal was asked for
            os._exit(127)
        os.dup2(outputs[0], 1)
        os.dup2(outputs[1], 2)
        doing = "cannot set its limits"
        limit(plan["limits"])
        doing = f"cannot enter its working directory {plan['cwd']!r}"
        os.chdir(plan["cwd"])
        doing = f"cannot run {plan['argv'][0]!r}"
        os.execvpe(plan["argv"][0], plan["argv"], {**plan["env"], MARK: plan["mark"]})
    except OSError as error:
        os.write(tell, f"{doing}: {error.strerror}".encode())
    except BaseException as error:  # noqa: BLE001 - this process must not go on as a keeper
        os.write(tell, f"{doing}: {error!r}".encode())
    finally:
        os._exit(127)


def limit(limits: dict[str, Any]) -> None:
    if limits["cgroup"]:
        with open(os.path.join(limits["cgroup"], "cgroup.procs"), "w", encoding="utf-8") as file:
            file.write("0")  # whoever writes it
    elif limits["memory"]:
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (limits["memory"], limits["memory"]))


def lock(folder: str) -> bool:
    """Be the folder's only keeper. Others may look at the lock for a moment."""
    descriptor = os.open(os.path.join(folder, "keeper.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    for _ in range(100):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.02)
    return False


def prepare(folder: str) -> Keeper | int:
    """The keeper of an attempt that was never made before, or why there is nothing to keep."""
    try:
        if not lock(folder):
            return BUSY
        keeper = Keeper(folder, read_json(folder, "plan.json"))
        if made_before(folder) >= keeper.plan["attempt"]:
            return DONE_BEFORE
        if os.path.exists(os.path.join(folder, "grace")):
            os.unlink(os.path.join(folder, "grace"))  # it was meant for an earlier attempt
    except (ValueError, KeyError, TypeError) as error:
        print(f"cannot use plan.json: {error!r}", file=sys.stderr)
        return BAD_PLAN
    except OSError as error:
        print(error, file=sys.stderr)
        return CANNOT_WRITE
    return keeper if keeper.save() else CANNOT_WRITE  # what runs is known, or it does not run


def made_before(folder: str) -> int:
    try:
        return int(read_json(folder, "state.json")["attempt"])
    except (OSError, ValueError, KeyError, TypeError):
        return -1


def main(folder: str) -> int:
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)  # the wake-up pipe has its number
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if os.getsid(0) != os.getpid():
        os.setsid()
    keeper = prepare(folder)
    if isinstance(keeper, int):
        return keeper
    if reason := keeper.spawn():
        keeper.state["not_started"] = reason
        keeper.save_for_good()
        return 0
    keeper.state["started_at"] = time.time()
    keeper.save()
    keeper.keep()
    keeper.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
