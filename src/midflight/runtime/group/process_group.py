"""The process group of one generation: built without global state, cut at will, retired quietly.

It is a plain `torch.distributed.ProcessGroup`, so DistributedDataParallel takes it; its keys live
in the coordinator. With NCCL, a gloo group beside it carries the small things. A group is cut when
its generation is over: gloo's sockets are shut down, NCCL's communicator is aborted, and whoever
is blocked in it gets an error within milliseconds.
"""

import contextlib
import gc
import os
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from midflight.deadlines import CONNECT, CONNECT_EACH
from midflight.errors import WorldChanged
from midflight.protocol.world import World
from midflight.runtime import torch_private
from midflight.runtime.group.keystore import NCCL_KEYS, KeyLine, KeyStore
from midflight.runtime.group.public_group import cuttable
from midflight.runtime.group.sockets import SocketSet, open_sockets
from midflight.runtime.group.waits import Waits, keep_for_ever

COLLECTIVE_SECONDS = 24 * 3600.0  # hangs are found by heartbeats, never by this
ABORT_SECONDS = 20.0  # for NCCL; one that takes longer is left where it is
BUILDING_SECONDS = 1.0  # a group that cannot be built does not keep the next one from it
# What torch does by itself about a broken communicator: nothing. Else its watchdog ends the
# process, or holds up its end, where the others go on in the next generation.
_NCCL_HABITS = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
}
SHARES_GPU = "Duplicate GPU detected"  # in NCCL's words
SHARED_GPU = (
    "two members use the same GPU, which NCCL cannot do: pass backend='gloo' to mf.join, or start "
    "one member per GPU at most (-H HOST:GPUS)"
)
_building = threading.Lock()  # so that sockets of two groups are not mixed up


def prefer_small_keys() -> None:
    """Else each member's key has a number for every other one: N x N numbers, for nothing.

    All members have to agree on it: gloo crashes on a key of the other kind.
    """
    os.environ.setdefault("GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER", "1")


prefer_small_keys()


class _ForkedCollector(threading.local):
    """Keeps a forked child's garbage collector off what it has inherited.

    A DataLoader's worker, for example, has its parent's groups but not their threads: to destroy
    a forgotten one would end it. No collection may begin before everything is frozen, and other
    modules run Python code in the child first, so the collector pauses before the fork.
    """

    paused = False  # by this thread; another one may fork at the same time

    def pause(self) -> None:
        self.paused = gc.isenabled()
        gc.disable()

    def resume(self) -> None:
        if self.paused:
            gc.enable()

    def freeze(self) -> None:
        gc.freeze()
        self.resume()


_collector = _ForkedCollector()
os.register_at_fork(
    before=_collector.pause,
    after_in_parent=_collector.resume,
    after_in_child=_collector.freeze,
)


def connect_seconds(size: int) -> float:
    """How long so many members may take to connect, if no coordinator ends it earlier."""
    return CONNECT + CONNECT_EACH * size


class Group:
    """One generation's connections. `pg` is None in a world of one: there is nobody to talk to."""

    def __init__(self, world: World, name: str, backend: str, scope: str = "") -> None:
        """`scope` tells a group of some of a generation's members from the group of all."""
        self.world = world
        self._scope = scope
        self.rank = world.rank(name)
        self.size = world.size
        self.generation = world.generation
        self.backend = backend
        self.pg: Any = None
        self.public: Any = None  # `pg`, for the script
        self.quiet: Any = None  # `pg`, for DDP objects that are ours
        self.control: Any = None  # gloo, for CPU tensors
        self.is_cut = False
        self._nccl: Any = None
        self._store: KeyStore | None = None  # NCCL connects when it is first used, and asks it then
        self._lock = threading.Lock()
        self._sockets: SocketSet | None = None
        self._aborting: threading.Thread | None = None
        self._builds_alone = False
        self.waits = Waits()
        self.on_cut: list[Callable[[], None]] = []  # called, from any thread, when it is cut

    @property
    def local_size(self) -> int:
        """How many of its members are on this host."""
        return self.world.local_size(self.world.names[self.rank])

    def connect(self, line: KeyLine) -> None:
        """Blocks until all members are connected; raises WorldChanged if it is cut meanwhile."""
        if self.size == 1:
            return
        seconds = connect_seconds(self.size)
        store = self._store = KeyStore(line, self.generation, self.size, seconds, self._scope)
        whole = False
        try:
            self._begin_building()
            self._connect_gloo(store)
            self._end_building()
            if self.backend == "nccl":
                self._connect_nccl(store)
            self._wrap(store)
            whole = True
        except (RuntimeError, WorldChanged) as error:
            raise WorldChanged(f"generation {self.generation} was not connected: {error}") from None
        finally:
            if not whole:
                self.cut()
        if self.is_cut:
            raise WorldChanged(f"generation {self.generation} ended before it was connected")

    def connect_alone(self) -> None:
        """A world of one needs no group; a rehearsal of what a larger one does has it."""
        store = torch_private.HashStore()
        own = self.world.members[self.rank].address
        with _building:
            self.control = torch_private.gloo_backend(store, 0, 1, own, CONNECT)
        if self.backend == "nccl":
            self._connect_nccl(store)
        self._wrap(store)

    def _begin_building(self) -> None:
        alone = _building.acquire(timeout=BUILDING_SECONDS)
        with self._lock:
            self._builds_alone = alone

    def _end_building(self) -> None:
        """Also at the cut: gloo may go on connecting for minutes, and the next world is due."""
        with self._lock:
            alone, self._builds_alone = self._builds_alone, False
        if alone:
            _building.release()

    def _connect_gloo(self, store: KeyStore) -> None:
        hosts = {member.address for member in self.world.members}
        sockets = SocketSet(open_sockets(), hosts, store.values)
        with self._lock:
            if self.is_cut:
                raise WorldChanged("it was cut")
            self._sockets = sockets
        own = self.world.members[self.rank].address
        seconds = connect_seconds(self.size)
        control = torch_private.gloo_backend(store, self.rank, self.size, own, seconds)
        torch_private.set_timeout(control, COLLECTIVE_SECONDS)
        with self._lock:
            self.control = control
            if not self.is_cut:
                sockets.collect()

    def _connect_nccl(self, store: torch_private.Store) -> None:
        os.environ |= _NCCL_HABITS  # torchrun's are others, for scripts that it restarts
        prefixed = torch_private.PrefixStore(NCCL_KEYS, store)
        self._nccl = torch_private.nccl_backend(prefixed, self.rank, self.size, COLLECTIVE_SECONDS)

    def _wrap(self, store: torch_private.Store) -> None:
        pg = dist.ProcessGroup(torch_private.PrefixStore("group", store), self.rank, self.size)
        backends = {"cpu": ("gloo", self.control)}
        if self._nccl is not None:
            backends["cuda"] = ("nccl", self._nccl)
        elif torch.cuda.is_initialized():
            backends["cuda"] = ("gloo", self.control)
        default = "nccl" if self._nccl else "gloo"
        torch_private.assemble(pg, f"midflight-{self.generation}", backends, default)
        self.public = self.quiet = pg
        if self._nccl is None:
            self.public = cuttable(pg, self.control, self.waits)
            self.quiet = cuttable(pg, self.control, self.waits, frozenset({"allreduce"}))
        self.pg = pg

    def cut(self) -> None:
        """Make whatever is blocked in this group fail. Callable from any thread, any time."""
        with self._lock:
            is_being_built = self.control is None and not self.is_cut
            self.is_cut = True
            if self._sockets is not None:
                if is_being_built:  # later on these may be another group's
                    self._sockets.collect()
                self._sockets.cut()
        self._end_building()
        self.waits.end()
        for call in tuple(self.on_cut):
            call()
        if (nccl := self._nccl) is not None and self._aborting is None:
            self._aborting = threading.Thread(
                target=_abort, args=[nccl], name="midflight-abort", daemon=True
            )
            self._aborting.start()

    def retire(self) -> None:
        """Let go of the connections, in a thread: closing a gloo group takes 10 ms a member.

        The interpreter waits for the thread at its end; a half-destroyed group would abort it.
        """
        threading.Thread(target=self.close, name=f"midflight-retire-{self.generation}").start()

    def close(self) -> None:
        with self._lock:
            sockets, self._sockets = self._sockets, None
        stuck = self.waits.stuck
        if self._aborting is not None:
            self._aborting.join(ABORT_SECONDS)
            stuck = stuck or self._aborting.is_alive()
        elif self._nccl is not None:
            with contextlib.suppress(RuntimeError):
                self._nccl.shutdown()
        if stuck:
            for part in (self.pg, self.control, self._nccl, self._store):
                keep_for_ever(part)
        self.pg = self.public = self.quiet = self.control = self._nccl = self._store = None
        if sockets is not None:
            sockets.close()

    # --- small collectives ------------------------------------------------------------------

    def all_reduce(self, tensor: torch.Tensor, options: Any) -> Any:
        """Its work, to be waited for with `waits`."""
        self.waits.met = True
        return self.pg.allreduce([tensor], options)

    def gather(self, numbers: list[int]) -> list[list[int]]:
        """Everybody's numbers, by rank."""
        if self.size == 1:
            return [numbers]
        mine = torch.tensor(numbers, dtype=torch.int64)
        theirs = [torch.empty_like(mine) for _ in range(self.size)]
        self.waits.wait(self.control.allgather([theirs], [mine]), mine)
        return [item.tolist() for item in theirs]

    def broadcast(self, tensor: torch.Tensor, root: int) -> None:
        """The root's values, everywhere."""
        self.broadcast_all([tensor], root)

    def broadcast_all(self, tensors: list[torch.Tensor], root: int) -> None:
        """The same for several, all of them on their way before any is waited for."""
        options = dist.BroadcastOptions()
        options.rootRank = root
        posted = [(self.pg.broadcast([tensor], options), tensor) for tensor in tensors]
        for work, tensor in posted:
            self.waits.wait(work, tensor)

    def broadcast_bytes(self, data: bytes, root: int) -> bytes:
        """The root's bytes, everywhere."""
        if self.size == 1:
            return data
        options = dist.BroadcastOptions()
        options.rootRank = root
        length = torch.tensor([len(data)], dtype=torch.int64)
        self.waits.wait(self.control.broadcast([length], options), length)
        buffer = torch.empty(int(length.item()), dtype=torch.uint8)
        if self.rank == root:
            buffer.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        self.waits.wait(self.control.broadcast([buffer], options), buffer)
        return bytes(buffer.tolist())


def _abort(nccl: Any) -> None:
    with contextlib.suppress(RuntimeError):
        nccl.abort()


def is_communication_error(error: BaseException, group: Group | None) -> bool:
    """Whether an exception comes from a broken group rather than from the script."""
    if isinstance(error, WorldChanged):
        return True
    if not isinstance(error, RuntimeError):
        return False
    if isinstance(error, dist.DistError):
        return True
    if group is not None and group.is_cut:
        return True
    text = str(error)
    return any(word in text for word in ("gloo", "NCCL", "nccl", "closed by peer"))


def explain(error: BaseException) -> str:
    """What it is in words; for a mistake that repeats itself in each world, what to do as well."""
    text = str(error)
    return f"{SHARED_GPU} ({text})" if SHARES_GPU in text else text
