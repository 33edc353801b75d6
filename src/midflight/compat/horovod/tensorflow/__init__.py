"""`horovod.tensorflow`: the names that training scripts use, with Horovod's signatures."""

from typing import Any

from midflight.compat.aliasing import missing
from midflight.compat.horovod.common import basics, process_sets
from midflight.compat.horovod.common.basics import *  # noqa: F403
from midflight.compat.horovod.common.exceptions import HorovodInternalError
from midflight.compat.horovod.common.process_sets import *  # noqa: F403
from midflight.compat.horovod.tensorflow import elastic
from midflight.compat.horovod.tensorflow.compression import Compression
from midflight.compat.horovod.tensorflow.functions import (
    allgather_object,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from midflight.compat.horovod.tensorflow.mpi_ops import (
    allgather,
    allreduce,
    alltoall,
    broadcast,
    broadcast_,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    reducescatter,
    size_op,
)
from midflight.compat.horovod.tensorflow.optimizer import (
    DistributedOptimizer,
    PartialDistributedOptimizer,
)
from midflight.compat.horovod.tensorflow.sync_batch_norm import SyncBatchNormalization
from midflight.compat.horovod.tensorflow.tape import (
    DistributedGradientTape,
    PartialDistributedGradientTape,
)
from midflight.compat.horovod.torch.mpi_ops import (
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
    barrier,
    join,
)


def __getattr__(name: str) -> Any:
    missing("horovod.tensorflow", name)


__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "HorovodInternalError",
    "Max",
    "Min",
    "PartialDistributedGradientTape",
    "PartialDistributedOptimizer",
    "Product",
    "Sum",
    "SyncBatchNormalization",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "elastic",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "join",
    "local_rank_op",
    "local_size_op",
    "process_set_included_op",
    "rank_op",
    "reducescatter",
    "size_op",
]
__all__ += basics.__all__
__all__ += process_sets.__all__
