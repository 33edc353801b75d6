"""Guide 1 on the cluster, command by command: a Horovod script, made larger and smaller."""

import re
from pathlib import Path

import pytest

from tests.guides.test_guide_1 import JOB, SUBMIT, instances, iterations
from tests.kubernetes.running.guide_terminal import ClusterTerminal
from tests.kubernetes.running.jobs import Jobs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SCRIPT = Path(__file__).resolve().parents[3] / "examples/09-horovod-synthetic/train.py"
GET, LOGS = f"arena get {JOB}", f"arena logs {JOB} --tail 10"
LATE = 3  # iterations that are far enough behind a change to be its result


def synthetic(folder: Path) -> Path:
    """The example's script, where the guide has it; paced, for a cluster runs beside it."""
    text = SCRIPT.read_text().replace(".step()\n", ".step()\n    time.sleep(0.02)\n")
    assert text.count("sleep") == 1
    script = folder / "elastic" / "pytorch_synthetic_benchmark_elastic.py"
    script.parent.mkdir(parents=True)
    script.write_text(text)
    return folder


def running(workers: int) -> dict[str, str]:
    names = ["launcher", *(f"worker-{n}" for n in range(workers))]
    return {f"{JOB}-{name}": "Running" for name in names}


def test_guide_1_on_the_cluster(jobs: Jobs, tmp_path: Path) -> None:
    examples = synthetic(tmp_path / "examples")
    # The image has /examples; process nodes have no images, so that a folder takes its place.
    submit = SUBMIT.replace("EXAMPLES", "/examples").replace(
        "--gpus=1", f"--gpus=1 --data-dir={examples}:/examples"
    )
    with ClusterTerminal(jobs, tmp_path) as terminal:
        # 2. Submit.
        said = terminal.types(submit)
        assert said.lines == [f"trainingjob.kai.alibabacloud.com/{JOB} created"]
        assert f"INFO[0000] The Job {JOB} has been submitted successfully" in said.err
        assert f"You can run `arena get {JOB} --type etjob" in said.err

        # 3. List.
        listed = terminal.until("arena list", lambda out: "RUNNING" in out)
        header, row = listed.splitlines()
        assert header.split() == ["NAME", "STATUS", "TRAINER", "AGE", "NODE"]
        assert row.split()[:3] == [JOB, "RUNNING", "ETJOB"]
        assert row.split()[4].startswith("127.")

        # 4. Get.
        shown = terminal.until(GET, lambda out: instances(out) == running(3))
        assert re.search(r"^Status: +RUNNING$", shown, re.M)
        assert re.search(r"^Trainer: +ETJOB$", shown, re.M)

        # 5. Logs.
        first = iterations(terminal.until(LOGS, lambda out: len(iterations(out)) >= 3))

        # 6. Scale out. 7. Get. 8. Logs.
        said = terminal.types(f'arena scaleout etjob --name="{JOB}" --count=1 --timeout=1m')
        (created,) = said.lines
        assert re.fullmatch(rf"scaleout\.kai\.alibabacloud\.com/{JOB}-\d+ created", created)
        operation = created.split("/")[1].split()[0]
        assert f"The scaleout job {operation} has been submitted successfully" in said.err
        grown = terminal.until(GET, lambda out: "succeeded" in out and instances(out) == running(4))
        assert re.search(rf"{operation} +scaleout +3 +4 +succeeded", grown)
        second = wait_until_after(terminal, first[-1] + LATE)

        # 9. Scale in: the newest leaves. 10. Get. 11. Logs.
        said = terminal.types(f'arena scalein etjob --name="{JOB}" --count=1 --timeout=1m')
        assert re.fullmatch(rf"scalein\.kai\.alibabacloud\.com/{JOB}-\d+ created", said.lines[0])
        shrunk = terminal.until(GET, lambda out: instances(out) == running(3))
        assert re.search(r"scalein +4 +3 +succeeded", shrunk)
        wait_until_after(terminal, second + LATE)

        # All three sizes were trained with, and no iteration was lost or done twice on the way.
        told = terminal.types(f"arena logs {JOB}").out
        assert re.findall(r"^\[0\]<stdout>:Number of workers: (\d)$", told, re.M) == list("343")
        every = iterations(told)
        assert every == list(range(len(every)))
        terminal.types(f"arena delete {JOB}")
        terminal.until("arena list", lambda out: len(out.splitlines()) == 1)


def wait_until_after(terminal: ClusterTerminal, iteration: int) -> int:
    """The last iteration that the log shows, once it is later than that one."""
    told = terminal.until(LOGS, lambda out: any(n > iteration for n in iterations(out)))
    return iterations(told)[-1]
