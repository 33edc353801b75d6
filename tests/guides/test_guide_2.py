"""Guide 2, command by command: backslashes inside the quoted command, and the newer `get`."""

import re
from pathlib import Path

import pytest

from tests.guides.scripts import MNIST_LIKE
from tests.guides.terminal import Terminal, table_under

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

SUBMIT = r"""
arena submit etjob \
    --name=elastic-training \
    --gpus=1 \
    --workers=2 \
    --max-workers=9 \
    --min-workers=1 \
    --image=registry.example/horovod:0.20.0 \
    --working-dir=EXAMPLES \
    "horovodrun \
    -np \$((\${workers}*\${gpus})) \
    --min-np \$((\${minWorkers}*\${gpus})) \
    --max-np \$((\${maxWorkers}*\${gpus})) \
    --host-discovery-script /etc/edl/discover_hosts.sh \
    python EXAMPLES/elastic/mnist_elastic.py
    "
"""
JOB = "elastic-training"


def instances(shown: str) -> list[tuple[str, str, str, str]]:
    rows = table_under("NAME", shown)
    return [(r["NAME"], r["STATUS"], r["IS_CHIEF"], r["GPU(Requested)"]) for r in rows]


def expected(workers: int) -> list[tuple[str, str, str, str]]:
    rest = [(f"{JOB}-worker-{n}", "Running", "false", "1") for n in range(workers)]
    return [(f"{JOB}-launcher", "Running", "true", "0"), *rest]


def speakers(logs: str) -> set[int]:
    """The ranks that say their steps in these lines."""
    return {int(n) for n in re.findall(r"^\[(\d+)\]<stdout>:Step #\d+\s+Loss: \d", logs, re.M)}


def test_guide_2(tmp_path: Path) -> None:
    (tmp_path / "elastic").mkdir()
    (tmp_path / "elastic" / "mnist_elastic.py").write_text(MNIST_LIKE)
    logs = f"arena logs {JOB} --tail 10"
    with Terminal(tmp_path) as terminal:
        terminal.types(SUBMIT.replace("EXAMPLES", str(tmp_path)))

        # Verify the running job.
        get = f"arena get {JOB}"
        shown = terminal.until(get, lambda out: instances(out) == expected(2))
        head = [line.split(":")[0] for line in shown.splitlines()[:6]]
        assert head == ["Name", "Status", "Namespace", "Priority", "Trainer", "Duration"]
        assert re.search(r"^Priority: +N/A$", shown, re.M)
        terminal.until(logs, lambda out: speakers(out) == {0, 1})

        # Scale out, and see all three in the log.
        said = terminal.types(f'arena scaleout etjob --name="{JOB}" --count=1 --timeout=10m')
        assert "has been submitted successfully" in said.err
        terminal.until(get, lambda out: instances(out) == expected(3))
        terminal.until(logs, lambda out: speakers(out) == {0, 1, 2})

        # Scale in, and see two.
        said = terminal.types(f'arena scalein etjob --name="{JOB}" --count=1 --timeout=10m')
        assert "has been submitted successfully" in said.err
        terminal.until(get, lambda out: instances(out) == expected(2))
        terminal.until(logs, lambda out: speakers(out) == {0, 1})
        terminal.types(f"arena delete {JOB}")
