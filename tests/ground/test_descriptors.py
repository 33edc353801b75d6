"""The limit of descriptors: lifted for ourselves, and as it was for the user's programs."""

import subprocess
import sys

SCRIPT = """
import resource, subprocess, sys
from midflight import descriptors
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (99, hard))
descriptors.raise_limit()
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
descriptors.raise_limit()
tell = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
child = [sys.executable, "-c", tell]
subprocess.run(child, preexec_fn=descriptors.restore_limit, check=True)
"""


def test_a_child_keeps_the_limit_that_its_user_has_set() -> None:
    told = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert (told.stdout, told.stderr) == ("99\n", "")
