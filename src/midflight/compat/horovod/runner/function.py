"""`horovod.run(func, ...)`: a Python function in several processes, and what it returned.

The launcher is horovodrun itself, in a process of its own. The processes have to see this machine's
temporary folder, so they run here, or where a file system is shared.
"""

import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from midflight.compat.horovod.runner import function_files, messages
from midflight.python310 import module_words

_TASK = "midflight.compat.horovod.runner.run_task"


def run(  # noqa: PLR0913 - Horovod's signature
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int = 1,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: Sequence[int] | None = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    host_discovery_script: str | None = None,
    start_timeout: int | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | None = None,
    verbose: bool | int | None = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | None = None,
    network_interfaces: str | None = None,
    executable: str | None = None,
    prefix_output_with_timestamp: bool = False,
    elastic_timeout: int | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[Any]:
    """What `func(*args, **kwargs)` returned in each process, by rank: in the first `num_proc`, or,
    in an elastic job, in the first `min_num_proc`. RuntimeError if the job failed, ValueError if
    what was asked for cannot be."""
    if hosts is not None and hostfile is not None:
        raise ValueError("Argument hosts and hostfile only allow one provided.")
    if use_gloo and use_mpi:
        raise ValueError("Argument use_gloo and use_mpi only allow one set True.")
    num_proc = _renamed("np", np, "num_proc", None if num_proc == 1 else num_proc) or 1
    min_num_proc = _renamed("min_np", min_np, "min_num_proc", min_num_proc)
    max_num_proc = _renamed("max_np", max_np, "max_num_proc", max_num_proc)
    flags = {
        "--num-proc": num_proc,
        "--min-np": min_num_proc,
        "--max-np": max_num_proc,
        "--slots-per-host": slots,
        "--reset-limit": reset_limit,
        "--blacklist-cooldown-range": cooldown_range,
        "--hosts": hosts,
        "--hostfile": hostfile,
        "--host-discovery-script": host_discovery_script,
        "--start-timeout": start_timeout,
        "--elastic-timeout": elastic_timeout,
        "--ssh-port": ssh_port,
        "--ssh-identity-file": ssh_identity_file,
        "--disable-cache": bool(disable_cache),
        "--output-filename": output_filename,
        "--verbose": bool(verbose),
        "--gloo": bool(use_gloo),
        "--mpi": bool(use_mpi),
        "--mpi-args": mpi_args,
        "--network-interfaces": network_interfaces or network_interface,
        "--prefix-output-with-timestamp": prefix_output_with_timestamp,
    }
    elastic = host_discovery_script is not None or min_num_proc is not None
    wanted = (min_num_proc or num_proc) if elastic else num_proc
    with tempfile.TemporaryDirectory(prefix="midflight-function-") as folder:  # 0700
        function_files.ship(Path(folder), func, tuple(args), kwargs)
        _launch(_words(flags), [executable or sys.executable, "-m", _TASK, folder], Path(folder))
        results = function_files.collect(Path(folder))
    if len(results) < wanted:
        raise RuntimeError(f"results of {wanted} processes were wanted, {len(results)} came")
    return results[:wanted]


def _launch(flags: list[str], command: list[str], folder: Path) -> None:
    outcome = folder / "outcome"
    launcher = module_words("midflight.compat.horovod.runner.launch")
    child = subprocess.Popen([*launcher, *flags, "--midflight-outcome", str(outcome), *command])
    try:
        code = child.wait()
    except BaseException:
        child.terminate()  # it clears up what it has started
        child.wait()
        raise
    if code != 0:
        words = outcome.read_text() if outcome.exists() else messages.SHUT_DOWN
        raise (ValueError if code == 2 else RuntimeError)(words)


def _words(flags: Mapping[str, object]) -> list[str]:
    words: list[str] = []
    for flag, value in flags.items():
        if value is True:
            words.append(flag)
        elif isinstance(value, str | int) and value is not False:
            words.append(f"{flag}={value}")
        elif isinstance(value, Sequence):
            words += [flag, *map(str, value)]
    return words


def _renamed(old: str, value: int | None, new: str, given: int | None) -> int | None:
    if value is None:
        return given
    warnings.warn(f"{old} is deprecated, use {new} instead", DeprecationWarning, stacklevel=3)
    return value if given is None else given
