"""torchft, tuned: one process per replica, a lighthouse, `manager.allreduce` used directly.

Its own DDP wrapper dies with a peer more often than not (see the docs), so gradients live in flat
buckets of about 25 MB, as DDP's do, and each bucket's all-reduce starts during the backward pass as
soon as its last gradient is there.
"""

import signal
import sys
from dataclasses import dataclass, field
from datetime import timedelta
from subprocess import Popen
from typing import TYPE_CHECKING, Any

from bench.processes import Run, free_port
from bench.systems import Shape

if TYPE_CHECKING:
    from torch import nn

BUCKET_BYTES = 25_000_000


@dataclass
class TorchftFleet:
    run: Run
    megabytes: int
    lighthouse: str
    untouchable: frozenset[int] = frozenset()
    replicas: list[Popen[bytes]] = field(default_factory=list)

    def add(self) -> None:
        number = len(self.replicas)
        arguments = ["-m", "bench.peers.torchft", "train", str(self.megabytes), str(number)]
        env = {"TORCHFT_LIGHTHOUSE": self.lighthouse, "RUST_LOG": "error"}
        self.replicas.append(self.run.start(arguments, env))

    def remove(self) -> None:
        self.replicas.pop().send_signal(signal.SIGTERM)


class Torchft:
    name = "torchft"

    def start(self, run: Run, shape: Shape) -> TorchftFleet:
        port = free_port()
        least = shape.workers if shape.gated else max(1, shape.workers - 1)
        arguments = ["-m", "bench.peers.torchft", "lighthouse", str(port), str(least)]
        run.start(arguments, {"RUST_LOG": "error"})
        fleet = TorchftFleet(run, shape.megabytes, f"http://127.0.0.1:{port}")
        for _ in range(shape.workers):
            fleet.add()
        return fleet


class Buckets:
    """Gradients as views of flat buffers, each reduced as soon as it is complete."""

    def __init__(self, model: "nn.Module", manager: Any) -> None:
        self._manager = manager
        self._works: list[Any] = []
        self._flat: list[Any] = []
        bucket: list[nn.Parameter] = []
        # Backward goes from the last layer to the first, and so do the buckets.
        for parameter in reversed(list(model.parameters())):
            bucket.append(parameter)
            if sum(p.numel() * 4 for p in bucket) >= BUCKET_BYTES:
                self._seal(bucket)
                bucket = []
        if bucket:
            self._seal(bucket)

    def _seal(self, parameters: "list[nn.Parameter]") -> None:
        import torch

        flat = torch.zeros(sum(p.numel() for p in parameters))
        self._flat.append(flat)
        missing = len(parameters)

        def arrived(_: "nn.Parameter") -> None:
            nonlocal missing
            missing -= 1
            if not missing:
                missing = len(parameters)
                self._works.append(self._manager.allreduce(flat))

        offset = 0
        for p in parameters:
            p.grad = flat[offset : offset + p.numel()].view_as(p)
            p.register_post_accumulate_grad_hook(arrived)
            offset += p.numel()

    def zero(self) -> None:
        for flat in self._flat:
            flat.zero_()

    def wait(self) -> None:
        for work in self._works:
            work.wait()
        self._works.clear()


def make_manager(number: int, model: Any, optimizer: Any) -> tuple[Any, Any]:
    """The manager and its group; each replica is a world of one with a store of its own."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # not in its __all__
    from torchft import Manager, ProcessGroupGloo

    def load(state: dict[str, Any]) -> None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    def save() -> dict[str, Any]:
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    group = ProcessGroupGloo(timeout=timedelta(seconds=5))
    manager = Manager(
        pg=group,
        load_state_dict=load,
        state_dict=save,
        min_replica_size=1,
        timeout=timedelta(seconds=5),
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        hostname="127.0.0.1",
        replica_id=f"replica_{number}",
        init_sync=False,
    )
    manager.bench_store = store  # lives as long as the manager does
    return manager, group


def serve_lighthouse(port: int, least: int) -> None:
    from torchft.coordination import LighthouseServer

    server = LighthouseServer(
        bind=f"[::]:{port}",
        min_replicas=least,
        join_timeout_ms=1000,
        quorum_tick_ms=20,
        heartbeat_timeout_ms=500,
    )
    signal.pause()
    server.shutdown()


def train(megabytes: int, number: int) -> None:
    from bench import model as task
    from bench.record import Recorder

    leaving: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: leaving.append(1))
    model, optimizer = task.build(megabytes)
    manager, group = make_manager(number, model, optimizer)
    buckets = Buckets(model, manager)
    recorder = Recorder.from_env()
    part = task.Share(0, 1)
    for x, y in task.batches(megabytes, part):
        manager.start_quorum()
        buckets.zero()
        task.criterion(model(x), y).backward()
        buckets.wait()
        if manager.should_commit():
            optimizer.step()
            recorder.done(manager.current_step(), group.size())
        part.rank, part.size = manager.participating_rank() or 0, manager.num_participants() or 1
        if leaving:
            manager.shutdown(wait=False)
            return


if __name__ == "__main__":
    what, first, second = sys.argv[1:]
    (serve_lighthouse if what == "lighthouse" else train)(int(first), int(second))
