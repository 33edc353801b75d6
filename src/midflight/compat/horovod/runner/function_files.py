"""A function, its arguments and its results, on their way to and from training processes.

They travel through files in a folder that only this user can write, never over a socket. A function
that can be imported travels by its name; the script that was started counts as a module, and is
imported without being run, as by multiprocessing. Any other function needs cloudpickle. Values are
JSON where that gives back the very same, and pickled otherwise; before something is unpickled the
folder is looked at, because whoever can write there could run code as this user.
"""

import importlib
import json
import math
import os
import runpy
import stat
import sys
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any

from midflight.atomic_file import write
from midflight.errors import JobFailed, UsageError

MAIN = "__mp_main__"  # what multiprocessing calls a script that is imported
TASK = "task.json"


def ship(folder: Path, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> None:
    """Write what `receive` needs in another process."""
    sys.modules.setdefault(MAIN, sys.modules["__main__"])  # for results that name a class of it
    task = {"path": sys.path, "function": _reference(func)}
    if task["function"] is None:
        _dump(folder / "function", func)
    _store(folder / "arguments", [list(args), dict(kwargs or {})])
    write(folder / TASK, json.dumps(task).encode(), durable=False)


def receive(folder: Path) -> tuple[Callable[..., Any], list[Any], dict[str, Any]]:
    """The function and what to call it with."""
    _check_private(folder)
    task = json.loads((folder / TASK).read_bytes())
    sys.path[:] = task["path"]
    where = task["function"]
    func = _load(folder / "function") if where is None else _resolve(where)
    args, kwargs = _fetch(folder / "arguments")
    return func, args, kwargs


def give_back(folder: Path, member: str, rank: int, value: object) -> None:
    _store(folder / f"result.{rank:06d}.{member}", value)


def collect(folder: Path) -> list[Any]:
    """What was given back, in the order of the ranks."""
    _check_private(folder)
    stems = {path.with_suffix("") for path in folder.glob("result.*.*.*")}
    return [_fetch(stem) for stem in sorted(stems)]


# --- functions ----------------------------------------------------------------------------------


def _reference(func: Callable[..., Any]) -> dict[str, str] | None:
    """How to find the function by name; None if it cannot be found that way."""
    module, name = getattr(func, "__module__", ""), getattr(func, "__qualname__", "")
    main = getattr(sys.modules["__main__"], "__file__", None)
    if not module or not name or "<" in name:
        return None
    if _found(sys.modules.get(module), name) is not func:
        return None
    if module != "__main__":
        return {"module": module, "name": name}
    return {"file": os.path.abspath(main), "name": name} if main else None


def _found(module: object, name: str) -> object:
    try:
        return reduce(getattr, name.split("."), module)
    except AttributeError:
        return None


def _resolve(where: dict[str, str]) -> Callable[..., Any]:
    module = importlib.import_module(where["module"]) if "module" in where else _main(where["file"])
    found = _found(module, where["name"])
    if not callable(found):
        raise JobFailed(f"there is no function {where['name']} where it was found before")
    return found


def _main(path: str) -> ModuleType:
    """The script that was started, as a module under both of its names."""
    sys.argv[0] = path
    module = ModuleType(MAIN)
    module.__dict__.update(runpy.run_path(path, run_name=MAIN))
    sys.modules["__main__"] = sys.modules[MAIN] = module
    return module


# --- values -------------------------------------------------------------------------------------


def _store(stem: Path, value: object) -> None:
    if is_plain(value):
        write(stem.with_name(stem.name + ".json"), json.dumps(value).encode(), durable=False)
    else:
        _dump(stem.with_name(stem.name + ".pickle"), value)


def _fetch(stem: Path) -> Any:
    plain = stem.with_name(stem.name + ".json")
    if plain.exists():
        return json.loads(plain.read_bytes())
    return _load(stem.with_name(stem.name + ".pickle"))


def is_plain(value: object) -> bool:
    """Whether JSON gives back the very same value."""
    kind = type(value)
    if kind is list:
        return all(map(is_plain, value))  # type: ignore[call-overload]
    if kind is dict:
        return all(type(k) is str and is_plain(v) for k, v in value.items())  # type: ignore[attr-defined]
    if kind is float:
        return math.isfinite(value)  # type: ignore[arg-type]
    return value is None or kind in (bool, int, str)


def _dump(path: Path, value: object) -> None:
    try:
        data = _pickling().dumps(value)
    except Exception as error:  # noqa: BLE001 - pickling runs the code of what is pickled
        raise UsageError(
            f"{value!r:.80} cannot be handed to another process: {error}; "
            "define functions at the top of a module, or install cloudpickle"
        ) from None
    write(path, data, durable=False)


def _load(path: Path) -> Any:
    return _pickling().loads(path.read_bytes())


def _pickling() -> Any:
    try:
        return importlib.import_module("cloudpickle")
    except ImportError:
        import pickle  # noqa: TID251 - files of this user alone, see _check_private

        return pickle


def _check_private(folder: Path) -> None:
    found = folder.stat()
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise JobFailed(f"others than this user may write in {folder}; nothing is read from it")
