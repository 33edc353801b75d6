"""Collectives that are matched by name: what Horovod's background thread does, on the runtime.

`requests` and `tally` decide, `talk` carries their words, `collectives` moves the tensors, and
`engine` is the thread around them; `process` is the one engine of this process.
"""
