"""The real program, run as users run it: in a process of its own, under one of its two names."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Arena = Callable[..., "Done"]
CODE = """
import sys
from midflight.cli.main import main
sys.argv[0] = sys.argv.pop(1)
sys.exit(main())
"""


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


def run_program(home: Path, *argv: str, name: str = "arena", **environment: str) -> Done:
    done = subprocess.run(
        [sys.executable, "-c", CODE, f"/somewhere/bin/{name}", *argv],
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        env={
            # Whoever runs the tests may have a cluster; they must not find it by themselves.
            **{name: value for name, value in os.environ.items() if name != "KUBECONFIG"},
            "MIDFLIGHT_HOME": str(home),
            "MIDFLIGHT_LOG_FORMAT": "text",
            **environment,
        },
    )
    return Done(done.returncode, done.stdout, without_seconds(done.stderr))


def without_seconds(text: str) -> str:
    """A line tells how many seconds the program has run; on a loaded machine it is not 0."""
    return re.sub(r"INFO\[\d{4}\]", "INFO[0000]", text)
