"""Sessions, estimators and what belongs to them: a script that uses them is told what to do.

TensorFlow 2 has none of it, and here too there is nothing: `hasattr` says so.
"""

from types import ModuleType
from typing import Any, NoReturn

PAGE = "docs/coming-from-kungfu.md#tensorflow-1"
_NAMES = frozenset(
    {
        *("ConfigProto", "GraphKeys", "Session", "app", "disable_v2_behavior", "estimator"),
        *("get_default_graph", "gfile", "global_variables", "global_variables_initializer"),
        *("layers", "log", "logging", "placeholder", "to_int32"),
    }
)


def explain(tensorflow: ModuleType) -> None:
    """From now on, the error for one of these names says where the script can be carried over."""
    usual: Any = vars(tensorflow).get("__getattr__", _missing)

    def get(name: str) -> Any:
        if name not in _NAMES:
            return usual(name)
        raise AttributeError(
            f"tf.{name} needs TensorFlow 1, which Midflight does not run; {PAGE} shows how a "
            "script with sessions or an estimator becomes one with Keras"
        )

    tensorflow.__dict__["__getattr__"] = get


def _missing(name: str) -> NoReturn:
    raise AttributeError(f"module 'tensorflow' has no attribute {name!r}")
