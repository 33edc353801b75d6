"""The private interfaces of torch: each is named here, with the reason, and nowhere else.

Torch may change these without notice. `INTERFACES` lists them, `check` raises an error that names
the missing ones before anything is trained, and `tests/runtime/test_torch_private.py` proves what
each has to do. The wrappers below are all that the rest of Midflight uses. What differs between
supported versions of torch (`PYTHON_WORKS`, `DDP_IS_QUIET`) is decided here too.
"""

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from midflight.errors import TorchUnsupported

if TYPE_CHECKING:  # torch.distributed has these names as well; its types do not say so
    from torch._C._distributed_c10d import GradBucket as GradBucket
    from torch._C._distributed_c10d import HashStore as HashStore
    from torch._C._distributed_c10d import PrefixStore as PrefixStore
    from torch._C._distributed_c10d import Store as Store
    from torch._C._distributed_c10d import Work as Work
else:
    GradBucket, Work = dist.GradBucket, dist.Work
    HashStore, PrefixStore, Store = dist.HashStore, dist.PrefixStore, dist.Store

OLDEST = (2, 6)
TRANSPORT = "GLOO_DEVICE_TRANSPORT"


@dataclass(frozen=True)
class Interface:
    name: str  # below `torch`; `()` after a part: of what it makes; the last may be declared only
    why: str


_GROUP = "distributed.ProcessGroup"
_GLOO = "distributed.ProcessGroupGloo"
_DDP = "nn.parallel.DistributedDataParallel"
_NCCL = "distributed.ProcessGroupNCCL"  # a CPU build has none
_MODULE = "nn.Module"
_OPTIMIZER = "optim.Optimizer"

INTERFACES = (
    Interface(
        f"{_GROUP}._register_backend",
        "a process group without global state: init_process_group allows one world at a time",
    ),
    Interface(f"{_GROUP}._set_default_backend", "DDP asks such a group for its backend"),
    Interface(f"{_GROUP}._set_group_name", "functional collectives look a group up by its name"),
    Interface(f"{_GROUP}._get_backend", "which kinds of memory a group can send as it is"),
    Interface(f"{_GROUP}._device_types", "the same devices for the group that a script sees"),
    Interface(
        f"{_GROUP}._allgather_base", "what all_gather_into_tensor calls; its waits end at a cut"
    ),
    Interface(
        f"{_GROUP}._reduce_scatter_base",
        "what reduce_scatter_tensor calls; its waits end at a cut",
    ),
    Interface(f"{_GLOO}._Options._devices", "gloo at the member's own address"),
    Interface(f"{_GLOO}._Options._threads", "few threads for each group"),
    Interface(f"{_GLOO}._Options._timeout", "a deadline for connecting"),
    Interface(f"{_GLOO}.create_device", "gloo at the member's own address"),
    Interface(
        f"{_GLOO}._set_default_timeout",
        "collectives have no deadline once the group is connected: heartbeats find a hang",
    ),
    Interface(f"{_NCCL}.Options._timeout", "collectives without a deadline"),
    Interface(f"{_NCCL}.abort", "makes whoever is blocked in NCCL fail"),
    Interface(f"{_DDP}._pre_forward", "DDP around a module that the script calls by itself"),
    Interface(f"{_DDP}._post_forward", "DDP around a module that the script calls by itself"),
    Interface(
        "distributed.Reducer._rebuild_buckets",
        "DDP agrees on the order of its buckets in a wait that no cut would end",
    ),
    Interface(
        "distributed.Reducer._get_zeros_like_grad_buckets",
        "how DDP will cut its buckets, for a rehearsal",
    ),
    Interface(
        "nn.parallel.distributed._find_tensors",
        "the outputs of a forward pass whose backward pass has to fail",
    ),
    Interface(
        "autograd.Variable._execution_engine.queue_callback",
        "an action after the whole backward pass, DDP's part of it included",
    ),
    Interface("_utils._flatten_dense_tensors", "many small tensors travel as one"),
    Interface("_utils._unflatten_dense_tensors", "many small tensors travel as one"),
    Interface("_foreach_copy_", "one call for many small copies"),
    Interface("Tensor._version", "whether a script has changed a buffer between two steps"),
    Interface(f"{_MODULE}._load_from_state_dict", "whether a module loads in a way of its own"),
    Interface(f"{_MODULE}()._load_state_dict_pre_hooks", "whether a hook takes part in loading"),
    Interface(f"{_MODULE}()._load_state_dict_post_hooks", "whether a hook takes part in loading"),
    Interface(
        f"{_MODULE}().state_dict()._metadata",
        "the versions of its modules, for a state_dict that was handed over",
    ),
    Interface(
        f"{_OPTIMIZER}._optimizer_step_pre_hooks",
        "whether a script's hooks would see the steps that a newcomer does over",
    ),
    Interface(
        f"{_OPTIMIZER}._optimizer_step_post_hooks",
        "whether a script's hooks would see the steps that a newcomer does over",
    ),
    Interface("cuda._is_in_bad_fork", "whether a warm standby could use CUDA"),
    Interface("nn.modules.batchnorm._BatchNorm", "the base of Horovod's SyncBatchNorm"),
)

# Before that, torch lost hold of works that were made in Python.
PYTHON_WORKS = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 7)
_DDP_OPTIONS = inspect.signature(DistributedDataParallel.__init__).parameters
_BUFFERS = "forward_sync_buffers" if "forward_sync_buffers" in _DDP_OPTIONS else "broadcast_buffers"
# A DDP that leaves buffers alone, and does not compare the members' parameters first: they are
# equal already. (Torch before 2.7 compares them all the same, and waits for the others there.)
DDP_IS_QUIET = "init_sync" in _DDP_OPTIONS
QUIET_DDP = {_BUFFERS: False, **({"init_sync": False} if DDP_IS_QUIET else {})}


def check() -> None:
    """Raise TorchUnsupported if this torch lacks an interface that Midflight uses."""
    gone = missing()
    if gone:
        names = "; ".join(f"torch.{item.name} ({item.why})" for item in gone)
        raise TorchUnsupported(
            f"torch {torch.__version__} lacks what Midflight needs of it: {names}. Install a torch "
            f"that this Midflight supports ({OLDEST[0]}.{OLDEST[1]} or later), or a newer Midflight"
        )
    _check_transport(os.environ.get(TRANSPORT))


def _check_transport(wanted: str | None) -> None:
    """gloo reads the variables by itself, in the middle of connecting, and names none of them."""
    if not wanted:
        return
    try:
        dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")
    except RuntimeError as error:
        hint = "its certificates are named by GLOO_DEVICE_TRANSPORT_TCP_TLS_PKEY, _CERT, _CA_FILE"
        raise TorchUnsupported(
            f"{TRANSPORT}={wanted}, but gloo in torch {torch.__version__} has none ({error}). "
            f"TCP_TLS wants a torch built with USE_GLOO_WITH_OPENSSL; {hint}. Without TLS, unset it"
        ) from None


def missing() -> list[Interface]:
    """What should be there and is not."""
    expected = (
        item for item in INTERFACES if dist.is_nccl_available() or not item.name.startswith(_NCCL)
    )
    return [item for item in expected if not _exists(item.name)]


def _exists(name: str) -> bool:
    found: Any = torch
    for part in name.split("."):
        own = part.removesuffix("()")
        if not hasattr(found, own):
            return own in getattr(found, "__annotations__", ())  # its instances have it
        found = getattr(found, own)() if own != part else getattr(found, own)
    return True


# --- process groups -----------------------------------------------------------------------------


def gloo_backend(store: Store, rank: int, size: int, address: str, connect_seconds: float) -> Any:
    """Blocks until all are connected; each is reached at its own address."""
    kind: Any = dist.ProcessGroupGloo
    options = kind._Options()
    options._timeout = timedelta(seconds=connect_seconds)
    options._threads = 2
    options._devices = [kind.create_device(hostname=address)]
    return kind(store, rank, size, options)


def set_timeout(gloo: Any, seconds: float) -> None:
    """From now on a collective may take so long."""
    gloo._set_default_timeout(timedelta(seconds=seconds))


def nccl_backend(store: Store, rank: int, size: int, seconds: float) -> Any:
    """Connects when it is first used. A collective may take so many seconds."""
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timedelta(seconds=seconds)
    return dist.ProcessGroupNCCL(store, rank, size, options)


def assemble(group: Any, name: str, backends: Mapping[str, tuple[str, Any]], default: str) -> None:
    """Have the group use these backends, by device: the kind (gloo, nccl) and the backend."""
    kinds = {"gloo": dist.ProcessGroup.BackendType.GLOO, "nccl": dist.ProcessGroup.BackendType.NCCL}
    group._set_default_backend(kinds[default])
    for device, (kind, backend) in backends.items():
        group._register_backend(torch.device(device), kinds[kind], backend)
    group._set_group_name(name)


def device_types(group: Any) -> list[str]:
    """The kinds of devices for which the group has a backend."""
    return [device.type for device in group._device_types]


def backend_name(group: Any, device: str) -> str | None:
    """Of the group's backend for such a device, or of a bare backend; None: it has none."""
    if not hasattr(group, "_get_backend"):
        return str(group.name())
    try:
        return str(group._get_backend(torch.device(device)).name())
    except RuntimeError:
        return None


# --- DistributedDataParallel --------------------------------------------------------------------


def before_forward(ddp: DistributedDataParallel, args: Any, kwargs: Any) -> Any:
    """What DDP does before the module's forward: its arguments and keywords."""
    return ddp._pre_forward(*args, **kwargs)


def after_forward(ddp: DistributedDataParallel, output: Any) -> Any:
    """What DDP does after it: the output."""
    return ddp._post_forward(output)


def rebuild_buckets(ddp: DistributedDataParallel) -> bool:
    """Agree with the others on the buckets' order, once, in the second forward; True if done."""
    return bool(ddp.reducer._rebuild_buckets())


def empty_buckets(ddp: DistributedDataParallel) -> list[GradBucket]:
    """Buckets of zeros, as DDP would hand them over now."""
    return list(ddp.reducer._get_zeros_like_grad_buckets())


def tensors_in(output: Any) -> list[Tensor]:
    """All tensors in what a forward pass returned."""
    found: Any = torch.nn.parallel.distributed
    return list(found._find_tensors(output))


def after_backward(action: Callable[[], None]) -> None:
    """When this backward pass is through, and so is what DDP has yet to queue for that moment."""
    engine: Any = torch.autograd.Variable._execution_engine
    engine.queue_callback(lambda: engine.queue_callback(action))


# --- tensors and modules ------------------------------------------------------------------------


def flatten(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors of one kind as one; of a single tensor torch makes no copy."""
    flat: Tensor = torch._utils._flatten_dense_tensors(list(tensors))
    return flat


def unflatten(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """The parts of a flat tensor, in these tensors' shapes."""
    return list(torch._utils._unflatten_dense_tensors(flat, list(like)))


def copy_each(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    torch._foreach_copy_(list(targets), list(sources))


def versions(tensors: Iterable[Tensor]) -> list[int]:
    """How often each was changed in place."""
    return [tensor._version for tensor in tensors]


def loads_plainly(module: nn.Module) -> bool:
    """Whether load_state_dict copies tensors, and calls nobody who might do more than that."""
    return type(module).load_state_dict is nn.Module.load_state_dict and not any(
        part._load_state_dict_pre_hooks
        or part._load_state_dict_post_hooks
        or not type(part)._load_from_state_dict.__module__.startswith("torch.nn.")
        for part in module.modules()
    )


def copy_metadata(state: Any, source: Any) -> None:
    """A state_dict carries its modules' versions in an attribute."""
    state._metadata = getattr(source, "_metadata", None)


def has_step_hooks(optimizer: torch.optim.Optimizer, ours: int = 1) -> bool:
    """Whether anybody but us has hooks on this optimizer's step."""
    before, after = optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks
    return len(before) > ours or bool(after)


def cuda_is_lost() -> bool:
    """In a forked child: whether CUDA was initialized before the fork."""
    return bool(torch.cuda._is_in_bad_fork())


if TYPE_CHECKING:
    BatchNormBase = torch.nn.modules.batchnorm._BatchNorm
else:  # where it is missing `check` says so; the import must not fail before that
    BatchNormBase = getattr(torch.nn.modules.batchnorm, "_BatchNorm", nn.Module)
