"""One package under two names: `import horovod.torch` gives `midflight.compat.horovod.torch`.

The second name is not a copy: both names mean the same module objects, so that state, classes and
exceptions are the same whichever name a script uses. What the first package does not have is
refused with a line that says where the list of what there is can be read.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn

DOCS = "docs/drop-ins.md"


def alias(name: str, target: str) -> None:
    """From now on, `name` and everything below it are `target` and everything below that."""
    if not any(isinstance(f, _Finder) and f.name == name for f in sys.meta_path):
        sys.meta_path.insert(0, _Finder(name, target))
    sys.modules[name] = importlib.import_module(target)


def missing(module: str, name: str) -> NoReturn:
    """For a module's `__getattr__`: this name is not part of the drop-in."""
    raise AttributeError(
        f"{module} has no {name!r} here; {DOCS} of Midflight lists what there is of it"
    )


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, target: str) -> None:
        self.name = name
        self._target = target

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(self.name + "."):
            return None
        real = self._target + fullname[len(self.name) :]
        try:
            found = importlib.util.find_spec(real)
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise ModuleNotFoundError(
                f"there is no {fullname} here; {DOCS} of Midflight lists what there is",
                name=fullname,
            )
        return importlib.machinery.ModuleSpec(fullname, _Loader(real), is_package=True)


class _Loader(importlib.abc.Loader):
    def __init__(self, real: str) -> None:
        self._real = real
        self._spec: importlib.machinery.ModuleSpec | None = None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._real)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """The import system has put the alias's spec there; the module keeps its own."""
        module.__spec__ = self._spec
