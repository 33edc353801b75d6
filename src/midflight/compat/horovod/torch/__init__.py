"""`horovod.torch`: the names that training scripts use, with Horovod's signatures."""

from typing import Any

from midflight.compat.aliasing import missing
from midflight.compat.horovod.common.exceptions import HorovodInternalError as HorovodInternalError
from midflight.compat.horovod.common.process_sets import *  # noqa: F403
from midflight.compat.horovod.torch import elastic as elastic
from midflight.compat.horovod.torch.autograd import *  # noqa: F403
from midflight.compat.horovod.torch.compression import Compression as Compression
from midflight.compat.horovod.torch.functions import *  # noqa: F403
from midflight.compat.horovod.torch.mpi_ops import *  # noqa: F403
from midflight.compat.horovod.torch.optimizer import DistributedOptimizer as DistributedOptimizer
from midflight.compat.horovod.torch.sync_batch_norm import SyncBatchNorm as SyncBatchNorm


def __getattr__(name: str) -> Any:
    missing("horovod.torch", name)
