"""A client in a notebook: cells that run one after the other inside an event loop that runs."""

import sys
from pathlib import Path

import pytest

from tests.guides.terminal import Terminal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

# What IPython does: all cells share one namespace, and its loop is running.
NOTEBOOK = '''
import asyncio

CELLS = [
"""
import midflight as mf
client = mf.Client()
""",
"""
words = ["sh", "-c", "echo begun; while [ ! -e go ]; do sleep 0.1; done; echo 'it is over'"]
job = client.submit("cells", words, worker_restart_policy="Never")
client.wait("cells", until="running").status
""",
"""
for line in client.logs("cells", follow=True):
    print(line)
    if "begun" in line:
        break
""",
"""
import subprocess, sys
subprocess.run([sys.executable, "-m", "midflight.cli.main", "down"], check=True)
""",
"""
open("go", "w").close()
print(client.wait("cells", timeout="1m").status)  # by a server that had to be started again
print(*client.logs("cells", tail=1))
""",
"""
client.submit("broken", "exit 3", worker_restart_policy="Never")
try:
    client.wait("broken")
except mf.MidflightError as error:
    print(type(error).__name__, error)
for each in client.list():
    client.delete(each.name)
print(client.list())
""",
]


async def kernel():
    assert asyncio.get_running_loop().is_running()
    known = {}
    for number, cell in enumerate(CELLS):
        exec(compile(cell, f"cell {number}", "exec"), known)
        await asyncio.sleep(0)


asyncio.run(kernel())
'''


def test_cells_submit_follow_and_wait_while_an_event_loop_runs(tmp_path: Path) -> None:
    (tmp_path / "notebook.py").write_text(NOTEBOOK)
    with Terminal(tmp_path) as terminal:
        said = terminal.types(f"{sys.executable} notebook.py", within=200)
    begun, _, status, last, broken, left = said.lines[:1] + said.lines[-5:]
    assert "begun" in begun
    assert status == "SUCCEEDED"
    assert "it is over" in last
    assert broken.startswith("JobFailed broken has failed: ")
    assert left == "[]"
