"""The template of the warm standbys: imports torch once, then forks whenever the agent asks.

Started by an agent as `python -m midflight.runtime.warm FD AGENT_PID`. Everything slow that a
training script does first has been done here before the fork: the imports, and the first optimizer
of each kind, whose lazy imports cost more than a second. What must not survive a fork is left
alone: no backward pass (autograd starts threads), no CUDA, no thread pool. A request is one byte
and a socket; a fork of a fork becomes the standby, so that the agent adopts it.
"""

import contextlib
import gc
import importlib
import os
import pkgutil
import random
import socket
import sys
import tempfile
import time
import warnings
from typing import Any

from midflight import prctl
from midflight.protocol import codec
from midflight.protocol.handover import LENGTH, READY, Work
from midflight.runtime import as_main

NO_TORCH = 3  # exit code: torch cannot be imported
CUDA_TOUCHED = 4  # exit code: torch would refuse to use CUDA in a fork of this process
_ADOPTION_SECONDS = 5.0


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    agent = int(sys.argv[2])
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # the current folder; a member gets its own first entry
    threads = preload()
    line = serve(control)
    line.sendall(READY.pack(settle(agent)))
    program = become(receive_work(line), threads).program
    as_main.run(program)


def preload() -> int:
    """Do the slow things. Returns how many threads torch would use by itself."""
    # Optimizers ask whether there is CUDA; this way the question does not initialize it.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        sys.exit(NO_TORCH)
    threads = int(torch.get_num_threads())
    torch.set_num_threads(1)
    for name in ("torch.distributed", "torch.nn.parallel", "torch.utils.data", "torch.amp"):
        importlib.import_module(name)
    import_runtime()
    step_optimizers()
    if cuda_is_lost():
        sys.exit(CUDA_TOUCHED)
    gc.collect()
    gc.freeze()
    return threads


def import_runtime() -> None:
    package = importlib.import_module("midflight.runtime")
    for module in pkgutil.walk_packages(package.__path__, "midflight.runtime."):
        if not module.name.endswith((".warm", ".__main__")):
            try:
                importlib.import_module(module.name)
            except Exception as error:  # noqa: BLE001 - a member that needs it will say it louder
                print(f"midflight: {module.name} is not preloaded: {error!r}", file=sys.stderr)


def step_optimizers() -> None:
    """Construct and step each common optimizer once, on a gradient set by hand.

    A step asks CUDA, where there is one, whether a graph is being captured, and that question
    alone would spoil CUDA for every fork: meanwhile there is none.
    """
    import torch

    available = torch.cuda.is_available
    torch.cuda.is_available = lambda: False
    try:
        _step_each(torch)
    finally:
        torch.cuda.is_available = available


def _step_each(torch: Any) -> None:
    for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam", "RAdam", "Adamax"):
        parameter = torch.nn.Parameter(torch.zeros(2))
        parameter.grad = torch.zeros(2)
        optimizer = getattr(torch.optim, name)([parameter], lr=0.1)
        optimizer.step()
        optimizer.zero_grad()
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    with torch.no_grad():
        scores = torch.nn.Linear(4, 4)(torch.zeros(2, 4))
        torch.nn.functional.cross_entropy(scores, torch.zeros(2, dtype=torch.long))


def cuda_is_lost() -> bool:
    """Whether CUDA cannot be used in a fork of this process; only a fork can tell."""
    from midflight.runtime import torch_private

    child = fork()
    if child == 0:
        os._exit(int(torch_private.cuda_is_lost()))
    _, status = os.waitpid(child, 0)
    return status != 0


def fork() -> int:
    with warnings.catch_warnings():
        # BLAS may keep a thread; it has fork handlers of its own.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def serve(control: socket.socket) -> socket.socket:
    """Fork on request, for ever. Returns in each new standby, with its line to the agent."""
    while True:
        word, fds, _, _ = socket.recv_fds(control, 1, 1)
        if not word:
            sys.exit(0)
        child = fork()
        if child == 0:
            if fork() != 0:
                os._exit(0)
            control.close()
            return socket.socket(fileno=fds[0])
        os.close(fds[0])
        os.waitpid(child, 0)


def settle(agent: int) -> int:
    """Lead a session, and wait to be adopted, for only then can we ask to die with the agent."""
    os.setsid()
    deadline = time.monotonic() + _ADOPTION_SECONDS
    while os.getppid() != agent:
        if time.monotonic() > deadline:
            os._exit(1)
        time.sleep(0.0002)
    prctl.die_with(agent)
    return os.getpid()


def receive_work(line: socket.socket) -> Work:
    """Wait for the agent's word, and take over the output it sends along."""
    head, fds, _, _ = socket.recv_fds(line, LENGTH.size, 2)
    if len(head) != LENGTH.size or len(fds) != 2:
        os._exit(0)  # the agent is gone, or does not need us any more
    body = b""
    (length,) = LENGTH.unpack(head)
    while len(body) < length:
        part = line.recv(length - len(body))
        if not part:
            os._exit(0)
        body += part
    line.close()
    for fd, own in zip(fds, (1, 2), strict=True):
        os.dup2(fd, own)
        os.close(fd)
    return codec.decode(Work, codec.loads(body))


def become(work: Work, threads: int) -> Work:
    """Shed what was inherited from the template: environment, folder, seeds, thread count."""
    import torch

    from midflight.runtime.group.process_group import prefer_small_keys

    os.environ.clear()
    os.environ.update(work.environment)
    prefer_small_keys()  # as the import has done it in the template
    os.chdir(work.directory)
    tempfile.tempdir = None
    with contextlib.suppress(ValueError):  # torch ignores a count that is none, too
        threads = int(os.environ.get("OMP_NUM_THREADS", threads))
    torch.set_num_threads(max(threads, 1))
    random.seed()
    torch.default_generator.seed()  # others are seeded when their device is first used
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    return work


if __name__ == "__main__":
    main()
