"""`horovod.tensorflow`: the names that training scripts use, with Horovod's signatures."""

from typing import Any

import tensorflow as tf

from midflight.compat import tensorflow_1
from midflight.compat.aliasing import missing
from midflight.compat.horovod.common.exceptions import HorovodInternalError as HorovodInternalError
from midflight.compat.horovod.tensorflow import elastic as elastic
from midflight.compat.horovod.tensorflow.compression import Compression as Compression
from midflight.compat.horovod.tensorflow.functions import *  # noqa: F403
from midflight.compat.horovod.tensorflow.mpi_ops import *  # noqa: F403
from midflight.compat.horovod.tensorflow.optimizer import *  # noqa: F403
from midflight.compat.horovod.tensorflow.sync_batch_norm import *  # noqa: F403
from midflight.compat.horovod.tensorflow.tape import *  # noqa: F403

tensorflow_1.explain(tf, tensorflow_1.HOROVOD_PAGE)


def __getattr__(name: str) -> Any:
    missing("horovod.tensorflow", name)
