"""Guide 2 on the cluster: the discovery script that is really there, and logs of all ranks."""

import re
from pathlib import Path

import pytest

from tests.guides.scripts import MNIST_LIKE
from tests.guides.terminal import PATIENCE
from tests.guides.test_guide_2 import JOB, SUBMIT, expected, instances, speakers
from tests.kubernetes.running.guide_terminal import ClusterTerminal
from tests.kubernetes.running.jobs import Jobs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

GET, LOGS = f"arena get {JOB}", f"arena logs {JOB} --tail 10"
DISCOVER = f"arena attach {JOB} -- /etc/edl/discover_hosts.sh"


def hosts(workers: int) -> str:
    return "".join(f"{JOB}-worker-{n}:1\n" for n in range(workers))


def test_guide_2_on_the_cluster(jobs: Jobs, tmp_path: Path) -> None:
    script = tmp_path / "examples" / "elastic" / "mnist_elastic.py"
    script.parent.mkdir(parents=True)
    script.write_text(MNIST_LIKE)
    # The image has /examples; process nodes have no images, so that a folder takes its place.
    submit = SUBMIT.replace("EXAMPLES", "/examples").replace(
        "--gpus=1", f"--gpus=1 --data-dir={tmp_path}/examples:/examples"
    )
    with ClusterTerminal(jobs, tmp_path) as terminal:
        terminal.types(submit)

        # Verify the running job.
        shown = terminal.until(GET, lambda out: instances(out) == expected(2))
        head = [line.split(":")[0] for line in shown.splitlines()[:6]]
        assert head == ["Name", "Status", "Namespace", "Priority", "Trainer", "Duration"]
        assert re.search(rf"^Namespace: +{jobs.namespace}$", shown, re.M)
        assert re.search(r"^Priority: +N/A$", shown, re.M)
        jobs.wait_training(JOB, "[1]<stdout>:Step #10 ", PATIENCE)
        terminal.until(LOGS, lambda out: speakers(out) == {0, 1})
        assert terminal.types(DISCOVER).out == hosts(2)

        # Scale out, and see all three in the log.
        said = terminal.types(f'arena scaleout etjob --name="{JOB}" --count=1 --timeout=10m')
        assert "has been submitted successfully" in said.err
        terminal.until(GET, lambda out: instances(out) == expected(3))
        jobs.wait_training(JOB, "[2]<stdout>:Step ", PATIENCE)
        terminal.until(LOGS, lambda out: speakers(out) == {0, 1, 2})
        assert terminal.types(DISCOVER).out == hosts(3)

        # Scale in, and see two.
        said = terminal.types(f'arena scalein etjob --name="{JOB}" --count=1 --timeout=10m')
        assert "has been submitted successfully" in said.err
        terminal.until(GET, lambda out: instances(out) == expected(2))
        terminal.until(LOGS, lambda out: speakers(out) == {0, 1})
        assert terminal.types(DISCOVER).out == hosts(2)
        terminal.types(f"arena delete {JOB}")
