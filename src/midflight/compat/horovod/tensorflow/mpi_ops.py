"""The collectives and the rest of what scripts look for in `horovod.tensorflow.mpi_ops`."""

from midflight.compat.horovod.common import basics, process_sets
from midflight.compat.horovod.common.basics import *  # noqa: F403
from midflight.compat.horovod.common.process_sets import *  # noqa: F403
from midflight.compat.horovod.tensorflow.gathers import (
    allgather,
    alltoall,
    broadcast,
    broadcast_,
    grouped_allgather,
)
from midflight.compat.horovod.tensorflow.places import (
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    size_op,
)
from midflight.compat.horovod.tensorflow.reductions import (
    allreduce,
    grouped_allreduce,
    grouped_reducescatter,
    reducescatter,
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

__all__ = [
    "Adasum",
    "Average",
    "Max",
    "Min",
    "Product",
    "Sum",
    "allgather",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
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
