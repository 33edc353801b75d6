"""`import horovod` in a process that Midflight started."""

from midflight.compat.aliasing import alias

alias("horovod", "midflight.compat.horovod")
