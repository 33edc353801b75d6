"""Fifty jobs at once on five nodes: what does not fit waits, with the reason, and has its turn."""

from collections import Counter
from pathlib import Path

import pytest

from tests.cluster.home import SPACE, Home
from tests.run.site import eventually

pytestmark = pytest.mark.slow

JOBS, NODES, GPUS = 50, 5, 8
AT_ONCE = NODES * GPUS // 2
# A job has succeeded with its master, which therefore waits for its worker to have run too.
COMMAND = (
    'echo "$MIDFLIGHT_INSTANCE" >> ran; '
    'until [ -e go ] && grep -qx "${MIDFLIGHT_INSTANCE%-*-*}-worker-0" ran; do sleep 0.5; done'
)


def phases(home: Home) -> Counter[str]:
    return Counter(job["status"] for job in home.client.jobs(SPACE))


def resident(pid: int) -> float:
    """MB of memory."""
    (line,) = (
        line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in line
    )
    return int(line.split()[1]) / 1024


def test_fifty_jobs_take_their_turns(home: Home) -> None:
    home.types(f"midflight up --nodes {NODES} --gpus-per-node {GPUS}")
    at_first = resident(home.server())
    for number in range(JOBS):
        home.client.submit(home.sleeper(f"j{number}", COMMAND, gpus=1))
    wanted = {"RUNNING": AT_ONCE, "PENDING": JOBS - AT_ONCE}
    eventually(lambda: phases(home) == wanted, within=60, but=lambda: str(phases(home)))
    nodes = home.client.nodes()
    assert [(n["allocatedGPUs"], len(n["instances"])) for n in nodes] == [(GPUS, GPUS)] * NODES
    waiting = home.types(f"midflight get j{JOBS - 1}").out
    assert "PENDING" in waiting
    assert f"0/{NODES} nodes have 1 free GPU" in waiting

    (home.folder / "go").touch()
    eventually(lambda: phases(home) == {"SUCCEEDED": JOBS}, 100, lambda: str(phases(home)))
    names = (home.folder / "ran").read_text().split()
    assert len(names) == len(set(names)) == 2 * JOBS
    # A job has succeeded with its master; its worker may take another moment.
    eventually(lambda: not any(node["allocatedGPUs"] for node in home.client.nodes()))
    eventually(lambda: list(home.processes()) == [home.server()], but=home.processes)
    assert resident(home.server()) < min(at_first + 30, 120)
