"""Guide 1 on the cluster, command by command: a Horovod script, made larger and smaller."""

import itertools
import re
from pathlib import Path

import pytest
import yaml

from tests.guides.terminal import PATIENCE
from tests.guides.test_guide_1 import JOB, SUBMIT, instances, iterations
from tests.kubernetes.running.guide_terminal import ClusterTerminal
from tests.kubernetes.running.jobs import Jobs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SCRIPT = Path(__file__).resolve().parents[3] / "examples/09-horovod-synthetic/train.py"
GET = f"arena get {JOB}"
TICKING = """
arena submit etjob --name=ticking --image=registry.example/train:1 --gpus=1 --workers=2 \\
    --min-workers=1 --max-workers=4 --run-in=launcher FLAGS \\
    "trap 'exit 0' TERM; while true; do echo tick; sleep 0.1; done"
"""
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
        assert re.search(rf"^INFO\[\d+\] The Job {JOB} has been submitted", said.err, re.M)
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
        first = last_iteration(terminal, jobs, after=2)

        # 6. Scale out. 7. Get. 8. Logs.
        said = terminal.types(f'arena scaleout etjob --name="{JOB}" --count=1 --timeout=1m')
        (created,) = said.lines
        assert re.fullmatch(rf"scaleout\.kai\.alibabacloud\.com/{JOB}-\d+ created", created)
        operation = created.split("/")[1].split()[0]
        assert f"The scaleout job {operation} has been submitted successfully" in said.err
        jobs.wait_scaled("ScaleOut", operation, PATIENCE)
        grown = terminal.until(GET, lambda out: "succeeded" in out and instances(out) == running(4))
        assert re.search(rf"{operation} +scaleout +3 +4 +succeeded", grown)
        second = last_iteration(terminal, jobs, after=first + LATE)

        # 9. Scale in: the newest leaves. 10. Get. 11. Logs.
        said = terminal.types(f'arena scalein etjob --name="{JOB}" --count=1 --timeout=1m')
        assert re.fullmatch(rf"scalein\.kai\.alibabacloud\.com/{JOB}-\d+ created", said.lines[0])
        shrunk = terminal.until(GET, lambda out: instances(out) == running(3))
        assert re.search(r"scalein +4 +3 +succeeded", shrunk)
        last_iteration(terminal, jobs, after=second + LATE)

        # All three sizes were trained with, and no iteration was lost or done twice on the way.
        told = terminal.types(f"arena logs {JOB}").out
        # (A world that is formed anew at the same size says its size again, and loses nothing.)
        sizes = re.findall(r"^\[0\]<stdout>:Number of workers: (\d)$", told, re.M)
        assert [size for size, _ in itertools.groupby(sizes)] == list("343")
        every = iterations(told)
        assert every == list(range(len(every)))
        terminal.types(f"arena delete {JOB}")
        terminal.until("arena list", lambda out: len(out.splitlines()) == 1)


def last_iteration(terminal: ClusterTerminal, jobs: Jobs, after: int) -> int:
    """That the end of the log shows, once it is later than that one."""
    jobs.wait_training(JOB, f"Iter #{after + 1}:", PATIENCE)
    logs = f"arena logs {JOB} --tail 10"
    return iterations(terminal.until(logs, iterations))[-1]


# --- what people do besides -----------------------------------------------------------------------


def test_logs_are_left_with_ctrl_c_and_commands_run_where_the_job_runs(
    jobs: Jobs, tmp_path: Path
) -> None:
    with ClusterTerminal(jobs, tmp_path) as terminal:
        terminal.types(TICKING.replace("FLAGS", ""))
        terminal.types("arena wait ticking --for running")

        with terminal.watches("arena logs -f ticking") as watched:
            assert [watched.out.readline() for _ in range(3)] == ["tick\n"] * 3
            assert watched.ctrl_c() == (130, "")
        assert re.search(r"^ticking +RUNNING ", terminal.types("arena list").out, re.M)

        # A command has its own output, input and exit code; a worker is asked for by name.
        said = terminal.types("arena attach ticking -- sh -c 'hostname; pwd; exit 3'", code=3)
        assert said.lines == ["ticking-launcher", "/root"]
        assert terminal.types("echo there and back | arena attach ticking -- cat").out == (
            "there and back\n"
        )
        worker = "ticking-worker-1"
        assert terminal.types(f"arena attach ticking -i {worker} hostname").lines == [worker]


def test_kubectl_habits_go_on(jobs: Jobs, tmp_path: Path, kubectl: object) -> None:
    with ClusterTerminal(jobs, tmp_path) as terminal:
        # A dry run makes nothing, and what it prints can be applied.
        submit = TICKING.replace("FLAGS", "--dry-run -o yaml").strip()
        (manifest,) = yaml.safe_load_all(terminal.types(submit).out)
        assert (manifest["kind"], manifest["metadata"]["name"]) == ("TrainingJob", "ticking")
        assert manifest["spec"]["etReplicaSpecs"]["worker"]["maxReplicas"] == 4
        assert "No resources found" in terminal.types("kubectl get trainingjobs,pods").err
        applied = terminal.types(f"{submit} | kubectl apply -f -").lines
        assert applied == ["trainingjob.kai.alibabacloud.com/ticking created"]

        jobs.wait_workers("ticking", 2)
        shown = terminal.types("kubectl get trainingjob,pods").out
        assert re.search(r"^trainingjob\.kai\.alibabacloud\.com/ticking +Running ", shown, re.M)
        pods = re.findall(r"^pod/(\S+) +1/1 +Running ", shown, re.M)
        assert pods == ["ticking-launcher", "ticking-worker-0", "ticking-worker-1"]
        with terminal.watches("kubectl logs -f ticking-launcher") as watched:
            assert [watched.out.readline() for _ in range(2)] == ["tick\n"] * 2
        assert terminal.types("kubectl logs ticking-launcher --tail=2").lines == ["tick"] * 2

        said = terminal.types("kubectl scale trainingjob/ticking --replicas=3").lines
        assert said == ["trainingjob.kai.alibabacloud.com/ticking scaled"]
        jobs.wait_workers("ticking", 3)
        assert re.search(r"2 +3 +succeeded", terminal.types("arena get ticking").out)
        told = terminal.types("kubectl describe trainingjob ticking").out
        assert re.search(r"^Events:$", told, re.M)
        assert re.search(r"Normal +Running ", told)

        terminal.types("kubectl delete trainingjob ticking")
        assert "No resources found" in terminal.types("kubectl get trainingjobs,pods").err
