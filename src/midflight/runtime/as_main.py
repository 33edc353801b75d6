"""Run a script or a module in this process as if the interpreter had been started with it.

`sys.argv`, `sys.path[0]`, `__main__`, `__file__`, exit codes, tracebacks and what happens at exit
are those of `python SCRIPT ARGUMENTS` or `python -m MODULE ARGUMENTS`. Our own frames are not
seen: an uncaught exception is printed here, the way the interpreter does it, before the process
leaves through SystemExit, so that threads, atexit handlers and buffers end in the usual order.
"""

import atexit
import builtins
import importlib.machinery
import io
import os
import runpy
import signal
import sys
import threading
import types
from typing import NoReturn

from midflight.protocol.handover import Program


def run(program: Program) -> NoReturn:
    """Ends in SystemExit, as the program would have ended."""
    sys.argv = [program.target, *program.arguments]
    option = ("-m",) if program.is_module else ()
    sys.orig_argv[:] = [program.interpreter, *option, *sys.argv]
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = main
    try:
        if program.is_module:
            _run_module(program.target)
        else:
            _run_script(program.target, main)
    except SystemExit:
        raise
    except KeyboardInterrupt as error:
        _report(error)
        _end_interrupted()
    except BaseException as error:  # noqa: BLE001 - this is where an uncaught one arrives
        _report(error)
        raise SystemExit(1) from None
    raise SystemExit(0)


def _run_module(name: str) -> None:
    _put_first_on_path(os.getcwd())
    sys.argv[0] = "-m"  # while the module is being looked for
    # What the interpreter itself calls for -m; there is no public name for it.
    runpy._run_module_as_main(name)  # type: ignore[attr-defined]


def _run_script(path: str, main: types.ModuleType) -> None:
    _put_first_on_path(os.path.dirname(os.path.realpath(path)))
    file = os.path.join(os.getcwd(), path)
    main.__dict__.update(__file__=file, __cached__=None)
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", file)
    with io.open_code(file) as source:
        code = compile(source.read(), file, "exec", dont_inherit=True)
    exec(code, main.__dict__)


def _put_first_on_path(folder: str) -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, folder)


def _report(error: BaseException) -> None:
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)


def _end_interrupted() -> NoReturn:
    """As the interpreter does it: clear up, then die of the signal itself."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
    raise SystemExit(130)  # not reached, unless the signal is blocked
