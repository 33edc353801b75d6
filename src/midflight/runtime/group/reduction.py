"""All-reduce over the present world, and the wait that makes NCCL's results certain."""

import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from midflight.errors import UsageError, WorldChanged
from midflight.runtime.group.process_group import Group

_OPS: dict[str, Any] = {
    "sum": dist.ReduceOp.SUM,
    "mean": dist.ReduceOp.SUM,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "product": dist.ReduceOp.PRODUCT,
}
POLL_SECONDS = 0.0002


def all_reduce(group: Group | None, tensor: Tensor, op: str) -> Tensor:
    if op not in _OPS:
        raise UsageError(f"all_reduce knows {', '.join(_OPS)}, got {op!r}")
    if group is None or group.pg is None:
        return tensor
    options = dist.AllreduceOptions()
    options.reduceOp = _OPS[op]
    group.waits.wait(group.all_reduce(tensor, options), tensor)
    wait_for_device(group, tensor.device)
    if op == "mean":
        tensor.div_(group.size)
    return tensor


def wait_for_device(group: Group | None, device: torch.device | None = None) -> None:
    """With NCCL a lost member shows on the device only: look before the weights are touched.

    `device`: where the results are to be; None: on the present one.
    """
    if group is None or group.backend != "nccl" or group.pg is None:
        return
    if device is not None and device.type != "cuda":
        return
    done = torch.cuda.Event()
    done.record(torch.cuda.current_stream(device))
    while not done.query():
        if group.is_cut:
            break
        time.sleep(POLL_SECONDS)
    if group.is_cut:
        raise WorldChanged("the group was cut")
