"""What is done to tensors before and after they travel."""

from typing import Any

import tensorflow as tf

from midflight.compat.horovod.torch.compression import Compressor, NoneCompressor


class FP16Compressor(Compressor):
    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        if not tensor.dtype.is_floating:
            return tensor, tensor.dtype
        return tf.cast(tensor, tf.float16), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tf.cast(tensor, ctx)


class Compression:
    none = NoneCompressor
    fp16 = FP16Compressor
