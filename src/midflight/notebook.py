"""`mf.launch(fn, workers=2)`: an elastic job of a function, from a script or a notebook.

Each member is a process of its own that has to come by the function without anything being pickled.
A function of a module is imported there. One of the script that is running is found by running the
script's file once more, not as `__main__`. One of a notebook, which has no file, is written out as
its source, with what it uses: imports, other functions and classes of the notebook, and plain
values. What cannot be written out is named, so that it can be moved into the function.
"""

import ast
import linecache
import os
import signal
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from midflight.deadlines import GRACE, KILLED
from midflight.errors import JobFailed, UsageError
from midflight.protocol.environment import PREFIX

OTHER = "__midflight_main__"  # the name of the script where it is not the main program


def launch(fn: Callable[[], object], workers: int = 2, *flags: str) -> None:
    """Run `fn()` in so many members, which call `mf.join`, and wait for the end of the job.

    `flags`: more of `midflight run`'s, as in "--max-np", "4". What members print comes out here.
    Raises JobFailed if the job does.
    """
    if workers < 1:
        raise UsageError(f"wanted 1 worker or more, got {workers}")
    if PREFIX + "MEMBER" in os.environ:
        raise UsageError(
            "mf.launch was called in a member of a job, which would start jobs without end: "
            "call it under `if __name__ == '__main__':`"
        )
    text = program(fn)
    with tempfile.TemporaryDirectory(prefix="midflight-") as folder:
        script = Path(folder) / "launched.py"
        script.write_text(text)
        words = ["-np", str(workers), *flags, "--", sys.executable, str(script)]
        code = _run([sys.executable, "-m", "midflight.run", *words])
    if code != 0:
        raise JobFailed(f"the job of {fn.__name__}() ended with exit code {code}: see its output")


def _run(words: list[str]) -> int:
    """Its exit code. Its output is printed by this process: a notebook shows nothing else."""
    run = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert run.stdout is not None
    try:
        for line in run.stdout:
            print(line, end="", flush=True)
        return run.wait()
    except BaseException:  # Ctrl-C, say; the members are let go as in a terminal
        run.send_signal(signal.SIGINT)
        try:
            run.wait(GRACE + KILLED)
        finally:
            run.kill()
        raise
    finally:
        run.stdout.close()


def program(fn: Callable[[], object]) -> str:
    """The script of a member."""
    if not isinstance(fn, types.FunctionType) or fn.__closure__ or "<" in fn.__qualname__:
        raise UsageError(f"wanted a function of a module, script or notebook, got {fn!r}")
    if fn.__module__ != "__main__":
        text = f"from {fn.__module__} import {fn.__name__}\n"
    elif file := getattr(sys.modules["__main__"], "__file__", None):
        path = str(Path(file).absolute())
        text = f"import runpy\n{fn.__name__} = runpy.run_path({path!r}, run_name={OTHER!r})"
        text += f"[{fn.__name__!r}]\n"
    else:
        text = "\n".join(_written_out(fn).values())
    return f"import sys\n\nsys.path[:] = {sys.path!r}\n{text}\n{fn.__name__}()\n"


def _written_out(fn: types.FunctionType) -> dict[str, str]:
    """What a function of a notebook needs, by name, each after what it needs itself."""
    known = vars(sys.modules["__main__"])
    done: dict[str, str] = {}
    under_way: set[str] = set()

    def add(name: str, value: Any) -> None:
        if name in done or name in under_way:
            return
        under_way.add(name)
        text = _as_text(name, value)
        for used in _names_in(text):
            if used in known and used != name:
                add(used, known[used])
        done[name] = text

    add(fn.__name__, fn)
    return done


def _as_text(name: str, value: Any) -> str:
    """A line or more after which `name` is that value."""
    if isinstance(value, types.ModuleType):
        return f"import {value.__name__} as {name}\n"
    if isinstance(value, type | types.FunctionType):
        if value.__module__ != "__main__":
            return f"from {value.__module__} import {value.__qualname__} as {name}\n"
        return _source(value)
    try:
        if ast.literal_eval(repr(value)) == value:
            return f"{name} = {value!r}\n"
    except (ValueError, SyntaxError):
        pass
    raise UsageError(
        f"the function uses {name}, a {type(value).__name__} of this notebook, which other "
        "processes do not have: make it inside the function"
    )


def _source(value: Any) -> str:
    """The lines of a function or class at the top level of a cell."""
    codes = (getattr(item, "__code__", None) for item in (value, *vars(value).values()))
    files = {code.co_filename for code in codes if code is not None}
    for file in files:
        lines = linecache.getlines(file)
        for node in ast.parse("".join(lines)).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == value.__name__:
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                return "".join(lines[first - 1 : node.end_lineno]) + "\n"
    raise UsageError(
        f"the source of {value.__name__} is not known, so other processes cannot have it: "
        "put it into a module, and import it"
    )


def _names_in(text: str) -> list[str]:
    found = [node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)]
    return list(dict.fromkeys(found))
