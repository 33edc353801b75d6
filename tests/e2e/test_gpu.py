"""A real GPU, where there is one: members that share it are resized and lose one of them.

None of this runs where there is no GPU.
"""

import signal
from pathlib import Path

import pytest

from tests.e2e.runs import Run, by_rank, check_complete, kill, ranked

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not Path("/dev/nvidia0").exists(), reason="there is no GPU here"),
]
SCRIPT = Path(__file__).parent / "scripts" / "on_gpu.py"
FLAGS = ("--min-np", "1", "--max-np", "3", "--cooldown", "60", "60")
EPOCHS = 15  # of scripts/counter.py


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["death", "hang"])
@pytest.mark.parametrize("ddp", ["ours", "own"])
@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_members_on_a_gpu_survive_resizes_and_a_loss(
    tmp_path: Path, backend: str, ddp: str, how: signal.Signals
) -> None:
    words = ["python", str(SCRIPT), str(tmp_path / "out"), backend, ddp]
    with Run(tmp_path, *FLAGS, script=words, np=2, warm=0) as run:
        run.await_stable(2, beyond=3)
        answer = run.resize("--to", "3")
        assert answer.returncode == 0, answer.stderr
        grown = run.progress()
        assert (len(ranked(grown)), grown["resets"]) == (3, 0)
        kill(by_rank(grown, 0), how=how)
        run.await_status(lambda s: s["resets"] == 1 and s["phase"] == "stable")
        run.progress()
        answer = run.resize("--to", "1")
        assert answer.returncode == 0, answer.stderr
        run.progress()
        assert run.finish() == 0
        check_complete(run, EPOCHS)


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_givers_that_die_while_they_hand_the_state_over_leave_none_of_it_torn(
    tmp_path: Path, backend: str
) -> None:
    megabytes = 2_000
    words = ["python", str(SCRIPT), str(tmp_path / "out"), backend, "ours", str(megabytes)]
    with Run(tmp_path, *FLAGS, script=words, np=2, warm=0) as run:
        before = run.await_stable(2, beyond=3)
        growing = run.begin_resize("--to", "3")
        run.await_status(lambda s: s["phase"] == "switching")
        kill(by_rank(before, 0))
        run.await_status(lambda s: s["resets"] >= 1 and len(ranked(s)) == 2)
        assert run.finish() == 0
        growing.communicate(timeout=120)  # it may have waited for another slot until the end
        check_complete(run, EPOCHS)  # the script itself looks at what it was given
