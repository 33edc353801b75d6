"""KungFu programs on Midflight's runtime: the names that such programs import, and its commands.

`python` and `torch` are for training processes, `tensorflow` has the hook for Keras. `config` is
the client of the config store. The commands are `run`, `config_server`, `cluster_manager` and
`fake_trainer`. What is different here, and why, is in docs/coming-from-kungfu.md.
"""

from typing import NoReturn

from midflight.compat.aliasing import missing


def __getattr__(name: str) -> NoReturn:
    missing("kungfu", name)
