"""`import kungfu` in a process that Midflight started."""

from midflight.compat.aliasing import alias

alias("kungfu", "midflight.compat.kungfu")
