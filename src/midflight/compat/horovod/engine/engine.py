"""The thread that carries out named collectives in one world.

Callers leave their work here and go on; the thread tells rank 0 what this member asks for, hears
what all have asked for, and does it in that order. On rank 0 it keeps the tally as well. When
anything breaks, or the world is over, every piece of work that is left fails, and so does whatever
is asked for afterwards: the next world has an engine of its own.
"""

import contextlib
import os
import selectors
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from midflight.compat.horovod.common.exceptions import HorovodInternalError, InvalidRequest
from midflight.compat.horovod.engine import collectives, talk
from midflight.compat.horovod.engine import requests as words
from midflight.compat.horovod.engine.collectives import Work
from midflight.compat.horovod.engine.requests import Asked, Request, Response, Told
from midflight.compat.horovod.engine.sets import Sets
from midflight.compat.horovod.engine.tally import Tally
from midflight.compat.horovod.engine.timeline import Timeline
from midflight.errors import ConnectionLost, ProtocolError
from midflight.runtime.group.process_group import Group, is_communication_error

LOOK_SECONDS = 5.0  # between two looks for stalls
JOIN_SECONDS = 5.0  # for the thread to end
GOODBYE_SECONDS = 1.0  # for a last word to be sent


@dataclass(frozen=True)
class Settings:
    fusion_threshold: int = 128 << 20  # bytes
    stall_warning: float = 60.0  # seconds; 0: never
    stall_shutdown: float = 0.0  # seconds; 0: never
    timeline: str = ""  # a file; "": none

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "Settings":
        off = env.get("HOROVOD_STALL_CHECK_DISABLE", "") not in ("", "0")
        return cls(
            fusion_threshold=int(_number(env, "HOROVOD_FUSION_THRESHOLD", 128 << 20)),
            stall_warning=0 if off else _number(env, "HOROVOD_STALL_CHECK_TIME_SECONDS", 60.0),
            stall_shutdown=_number(env, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", 0.0),
            timeline=env.get("HOROVOD_TIMELINE", ""),
        )


def _number(env: Mapping[str, str], name: str, default: float) -> float:
    """What Horovod does with a number that is none: it takes the default."""
    try:
        return max(0.0, float(env.get(name, default)))
    except ValueError:
        return default


class Engine:
    def __init__(
        self,
        group: Group,
        sets: Sets,
        lines: dict[int, talk.Line],
        settings: Settings,
        timeline: Timeline,
        on_break: Callable[[Exception], None],
    ) -> None:
        self.group = group
        self._sets = sets
        self._lines = lines
        self._settings = settings
        self._timeline = timeline
        self._on_break = on_break
        self._lock = threading.Lock()
        self._open: dict[tuple[int, str], Work] = {}
        self._outbox: list[Request] = []
        self._numbers: dict[Request, int] = {}  # what rank 0 remembers of this member
        self._known: dict[int, list[Request]] = {}  # on rank 0: what it remembers, by rank
        self._steady: set[int] = set()  # ids of requests in the outbox that will come again
        self._joining: Work | None = None
        self._broken: Exception | None = None
        self._closing = False
        self._retired = False
        self._goodbye_said = threading.Event()
        self._tally = Tally(group.size, dict(sets.ranks))
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        self._awake = False  # a wake-up is in the pipe
        group.on_cut.append(self._wake)
        self._thread = threading.Thread(target=self._run, name="midflight-horovod", daemon=True)
        self._thread.start()

    # --- called by whoever asks -------------------------------------------------------------

    def submit(self, work: Work) -> None:
        """Leave a piece of work here; the next `flush` makes it known."""
        request = work.request
        key = (request.process_set, request.name)
        with self._lock:
            if self._broken is not None or self.group.is_cut:
                raise HorovodInternalError(f"the world has changed: {self._broken or 'it was cut'}")
            if request.kind == words.JOIN:
                self._joining = work
            elif key in self._open:
                raise InvalidRequest(
                    f"Requested to {request.kind} a tensor with the same name as another tensor "
                    f"that is currently being processed: '{request.name}'. Use a different name."
                )
            else:
                self._open[key] = work
            self._outbox.append(request)
            if work.steady:
                self._steady.add(id(request))
        self._timeline.negotiating(request)

    def flush(self) -> None:
        """Make what was left here known to the others."""
        if self._outbox:
            self._wake()

    def _wake(self) -> None:
        with self._lock:
            if not self._awake:
                self._awake = True
                os.write(self._wake_write, b"!")

    def retire(self) -> None:
        """This world is about to be left in good order: what breaks from now on is no news."""
        self._retired = True

    def say_goodbye(self) -> None:
        """This member asks for nothing more. Returns when the others can know, or soon."""
        self._retired = True
        with self._lock:
            self._outbox.append(Request("", words.SHUTDOWN))
        self._wake()
        if self._thread.is_alive():
            self._goodbye_said.wait(GOODBYE_SECONDS)

    def close(self) -> None:
        """End the thread; what is left fails.

        Ranks that leave the job have no part in the next world, and may come to the end of this
        one later: they are told that it is no failure.
        """
        self.group.on_cut.remove(self._wake)
        self._closing = True
        self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join(JOIN_SECONDS)
        if self._broken is None:
            self._take_leave()
        self._fail(HorovodInternalError("Horovod has been shut down."))
        for line in self._lines.values():
            line.close()
        with self._lock:
            os.close(self._wake_write)
            os.close(self._wake_read)

    def _take_leave(self) -> None:
        word = (
            Told((Response((), words.SHUTDOWN),))
            if self.group.rank == 0
            else Asked((Request("", words.SHUTDOWN),))
        )
        for line in self._lines.values():
            with contextlib.suppress(ConnectionLost):  # it was quicker
                line.send(word)

    # --- the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._wake_read, selectors.EVENT_READ, None)
                for rank, line in self._lines.items():
                    selector.register(line.sock, selectors.EVENT_READ, (rank, line))
                while not self._closing:
                    self._turn(selector)
                    if self.group.is_cut:
                        raise HorovodInternalError("a member was lost")
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody may wait for this thread
            self._fail(error)
            if not self._closing and not self._retired:
                self._on_break(error)

    def _turn(self, selector: selectors.BaseSelector) -> None:
        """Hear, ask or tally, and carry out what has become possible."""
        told: list[Response] = []
        for key, _ in selector.select(LOOK_SECONDS):
            if key.data is None:
                self._drain()
                continue
            rank, line = key.data
            for frame in line.receive():
                if isinstance(frame, Told):
                    told += frame.responses
                else:
                    told += self._count(rank, self._spelled_out(rank, frame))
        with self._lock:
            asked, self._outbox = tuple(self._outbox), []
            steady, self._steady = self._steady, set()
        if self.group.rank == 0:
            told = self._tell(told + self._count(0, asked))
        elif asked:
            self._lines[0].send(self._abridged(asked, steady))
        if any(request.kind == words.SHUTDOWN for request in asked):
            self._goodbye_said.set()
        for response in told:
            self._carry_out(response)

    def _abridged(self, asked: tuple[Request, ...], steady: set[int]) -> Asked:
        known = [r for r in asked if id(r) in steady and r in self._numbers]
        kept = [r for r in asked if id(r) in steady and r not in self._numbers]
        others = [r for r in asked if id(r) not in steady]
        again = tuple(self._numbers[request] for request in known)
        for request in kept:
            self._numbers[request] = len(self._numbers)
        return Asked((*kept, *others), len(kept), again)

    def _spelled_out(self, rank: int, frame: Asked) -> tuple[Request, ...]:
        known = self._known.setdefault(rank, [])
        known += frame.requests[: frame.kept]
        if any(not 0 <= number < len(known) for number in frame.again):
            raise ProtocolError(f"rank {rank} asked for something again that it never asked for")
        return (*frame.requests, *(known[number] for number in frame.again))

    def _count(self, rank: int, asked: tuple[Request, ...]) -> list[Response]:
        """On rank 0: a member's requests. A goodbye is answered at once."""
        self._tally.add(rank, asked, time.monotonic())
        if not any(request.kind == words.SHUTDOWN for request in asked):
            return []
        self._retired = True  # its line may close before the others have been told
        return [Response((), words.SHUTDOWN)]

    def _tell(self, last: list[Response]) -> list[Response]:
        """On rank 0: what everybody is to do now."""
        responses = [*self._tally.ready(), *last]
        if responses:
            for line in self._lines.values():
                line.send(Told(tuple(responses)))
        self._look_for_stalls()
        return responses

    def _drain(self) -> None:
        with self._lock:
            self._awake = False
            os.read(self._wake_read, 64)

    def _look_for_stalls(self) -> None:
        seconds = self._settings.stall_warning
        now = time.monotonic()
        for name, ranks in self._tally.stalled(now, seconds).items() if seconds else ():
            print(
                f"One or more tensors were submitted by some ranks only and wait for the others "
                f"for more than {seconds:g} seconds: '{name}', missing ranks: {ranks}",
                flush=True,
            )
        limit = self._settings.stall_shutdown
        if limit and self._tally.oldest(now) >= max(limit, seconds):
            raise HorovodInternalError(f"a tensor has been waited for for {limit:g} seconds")

    def _carry_out(self, response: Response) -> None:
        group = self._sets.group(response.process_set)
        works = self._taken(response)
        if response.error:
            for work in works:
                work.fail(InvalidRequest(response.error))
            return
        if response.kind == words.JOIN:
            self._all_joined(response.last)
            return
        if response.kind == words.SHUTDOWN:
            self._retired = True  # a member that has come to its end is no failure
            self._fail(HorovodInternalError("Horovod has been shut down: a rank has ended."))
            return
        if group is None:  # a process set that this member is not in
            return
        for work in works:
            if work.ready is not None:
                work.ready.synchronize()
        with self._timeline.executing(response):
            self._execute(group, response, works)

    def _taken(self, response: Response) -> list[Work]:
        """This member's pieces of work; zeros for what a member that has joined does not have."""
        with self._lock:
            found = [self._open.pop((response.process_set, name), None) for name in response.names]
        templates = {request.name: request for request in response.template}
        works = []
        for name, work in zip(response.names, found, strict=True):
            if work is not None:
                works.append(work)
            elif name in templates and self._joining is not None:
                works.append(collectives.zeros_for(templates[name]))
        return works

    def _execute(self, group: Group, response: Response, works: list[Work]) -> None:
        try:
            if response.kind == words.ALLREDUCE:
                collectives.allreduce(group, works, self._settings.fusion_threshold)
            else:
                (work,) = works
                self._execute_one(group, response, work)
        except Exception as error:
            broken = is_communication_error(error, group)
            kind = HorovodInternalError if broken else InvalidRequest
            for work in works:
                work.fail(error if isinstance(error, NotImplementedError) else kind(str(error)))
            if broken:  # otherwise it is this operation's error, on every rank
                raise

    def _execute_one(self, group: Group, response: Response, work: Work) -> None:
        match response.kind:
            case words.ALLGATHER:
                collectives.allgather(group, work, response)
            case words.BROADCAST:
                root = self._sets.rank_in(response.process_set, work.request.root)
                collectives.broadcast(group, work, root)
            case words.ALLTOALL:
                collectives.alltoall(group, work, response.splits)
            case words.REDUCESCATTER:
                collectives.reducescatter(group, work)
            case words.ADD_SET:
                self._sets.add(response.number, work.request.ranks)
                work.succeed(response.number)
            case words.REMOVE_SET:
                self._sets.remove(response.number)
                work.succeed(response.number)
            case _:  # a barrier: that everybody is here is all there is to it
                work.succeed(None)

    def _all_joined(self, last: int) -> None:
        with self._lock:
            work, self._joining = self._joining, None
        if work is not None:
            work.succeed(last)

    def _fail(self, error: Exception) -> None:
        with self._lock:
            if self._broken is None:
                self._broken = error
            left, self._open = list(self._open.values()), {}
            if self._joining is not None:
                left.append(self._joining)
                self._joining = None
        for work in left:
            work.fail(HorovodInternalError(str(error)))
