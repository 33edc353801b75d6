"""Runs first in every Python that finds the shims: `python -m torch.distributed.run` is torchrun.

So are `torch.distributed.launch` and `torchelastic.distributed.launch`; they would start torch's
own launcher without a word. A sitecustomize of the user's own, further down the path, runs as well.
The Python is the user's, and may be older than Midflight's: annotations are quoted.
"""

import sys
from collections.abc import Sequence

LAUNCHERS = {
    "torch.distributed.run": (),
    "torch.distributed.launch": ("--local-rank-argument",),  # unless --use-env is given
    "torchelastic.distributed.launch": (),
}
RUN_MODULE = (  # as in midflight.python310
    "import sys; sys.path[:] = filter(None, sys.path); del sys.argv[0]; import runpy; "
    "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


def torchrun_words(words: "Sequence[str]") -> "list[str] | None":
    """What torchrun is to be given, if this is the command line of one of the launchers. Pure."""
    rest = list(words[1:])
    while rest and rest[0].startswith("-") and not rest[0].startswith("-c"):
        word = rest.pop(0)
        if not word.startswith("--") and word.endswith("m") and rest:
            module = rest.pop(0)
            return [*LAUNCHERS[module], *rest] if module in LAUNCHERS else None
        if word in _WITH_VALUE and rest:
            rest.pop(0)
    script = "." + rest[0].replace("/", ".") if rest else ""
    for module, first in LAUNCHERS.items():
        if script.endswith("." + module + ".py"):  # as TorchElastic's image has it
            return [*first, *rest[1:]]
    return None


def command_line() -> "list[str]":
    """This process's words; [] where Python is older than 3.10 and there is no /proc."""
    known: list[str] | None = getattr(sys, "orig_argv", None)
    if known is not None:
        return known
    try:
        with open("/proc/self/cmdline", "rb") as file:
            return file.read().decode(errors="surrogateescape").split("\0")[:-1]
    except OSError:
        return []


def _take_over() -> None:
    import os

    words = torchrun_words(command_line())
    ours = os.environ.get("MIDFLIGHT_PYTHON")
    if words is not None and ours:
        os.environ.setdefault("PYTHON_EXEC", sys.executable)  # which is to run the workers
        os.execv(ours, [ours, "-c", RUN_MODULE, "midflight.torchrun", *words])


def _run_the_users_own() -> None:
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec
    from pathlib import Path

    here = Path(__file__).resolve().parent
    path = [part for part in sys.path if Path(part).resolve() != here]
    spec = PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


if __name__ == "sitecustomize":
    _take_over()
    _run_the_users_own()
