"""`horovod.keras`: another name of `horovod.tensorflow.keras` and what is below it."""

from midflight.compat.aliasing import alias

alias(__name__, "midflight.compat.horovod.tensorflow.keras")
