"""A world of many members: real gloo between real processes, what it costs, and the loss of one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MOST, MIB_EACH = 64, 64
SECONDS = 200.0
OF_A_LOST_OPERATION = 8  # descriptors that gloo keeps beside its connections, at most


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_many_members_form_a_world_and_another_one_without_the_member_that_died() -> None:
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    size = max(8, min(MOST, free // (MIB_EACH << 20)))
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtime.many_members", str(size)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    totals = sum(range(size)), sum(range(size)) - size // 2
    for world, total, members in zip(("first", "second"), totals, (size, size - 1), strict=True):
        assert [told for told, _ in found[world]] == [total] * members
        peers = members - 1
        for _, descriptors in found[world]:
            assert 2 * peers <= descriptors <= 2 * peers + 8, "two for each other member"
    for left, stuck in found["left"]:
        assert left <= (OF_A_LOST_OPERATION if stuck else 0)
