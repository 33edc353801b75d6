"""Sessions, estimators and what belongs to them: a script that uses them is told what to do.

TensorFlow 2 has none of it, and here too there is nothing: `hasattr` says so.
"""

from types import ModuleType
from typing import Any

HOROVOD_PAGE = "docs/coming-from-horovod.md#tensorflow-1"
KUNGFU_PAGE = "docs/coming-from-kungfu.md#tensorflow-1"
_NAMES = frozenset(
    {
        *("ConfigProto", "GraphKeys", "Session", "app", "disable_v2_behavior", "estimator"),
        *("get_default_graph", "gfile", "global_variables", "global_variables_initializer"),
        *("layers", "log", "logging", "placeholder", "to_int32"),
    }
)
_OF_TRAIN = frozenset({"AdamOptimizer", "GradientDescentOptimizer", "MomentumOptimizer", "Saver"})


def explain(tensorflow: Any, page: str) -> None:
    """From now on, the error for one of these names says which page shows what to do."""
    _explain(tensorflow, "tf", _NAMES, page)
    _explain(tensorflow.train, "tf.train", _OF_TRAIN, page)


def _explain(module: ModuleType, called: str, names: frozenset[str], page: str) -> None:
    usual: Any = vars(module).get("__getattr__")

    def get(name: str) -> Any:
        if name in names:
            raise AttributeError(
                f"{called}.{name} needs TensorFlow 1, which Midflight does not run; {page} shows "
                "how a script with sessions or an estimator becomes one with Keras"
            )
        if usual is not None:
            return usual(name)
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

    module.__dict__["__getattr__"] = get
