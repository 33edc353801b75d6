"""Stand-ins for what Python 3.11 added: the image of a job may have 3.10.

Midflight is installed on Python 3.11 or later. What is provided to an image (agent, launcher,
members and the drop-in commands) runs on 3.10 as well, and takes these names from here.
"""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

OLDEST = (3, 10)  # that an image may have

# As `-P -m MODULE`, followed by MODULE: no file in the current folder is taken for a module.
# Without `$`, which shells and Kubernetes would replace.
RUN_MODULE = (
    "import sys; sys.path[:] = filter(None, sys.path); del sys.argv[0]; import runpy; "
    "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)


def module_words(module: str) -> list[str]:
    """A command that runs a module with this interpreter."""
    words = ["-P", "-m"] if hasattr(sys.flags, "safe_path") else ["-c", RUN_MODULE]
    return [sys.executable, *words, module]


if TYPE_CHECKING:
    from typing_extensions import assert_never, dataclass_transform
elif sys.version_info >= (3, 11):
    from typing import assert_never, dataclass_transform
else:

    def assert_never(value: object) -> NoReturn:
        raise AssertionError(f"nobody handles {value!r}")

    def dataclass_transform(**_: Any) -> Callable[[Any], Any]:
        return lambda decorator: decorator


__all__ = [
    "OLDEST",
    "RUN_MODULE",
    "assert_never",
    "dataclass_transform",
    "module_words",
]
