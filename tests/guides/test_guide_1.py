"""Guide 1, command by command: an elastic job through horovodrun, made larger and smaller."""

import re
from pathlib import Path

import pytest

from tests.guides.scripts import SYNTHETIC
from tests.guides.terminal import Terminal, table_under

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

SUBMIT = r"""
arena submit etjob \
        --name=elastic-training-synthetic \
        --gpus=1 \
        --workers=3 \
        --max-workers=9 \
        --min-workers=1 \
        --image=registry.example/horovod:0.20.0 \
        --working-dir=EXAMPLES \
        "horovodrun
        --verbose
        --log-level=DEBUG
        -np \$((\${workers}*\${gpus}))
        --min-np \$((\${minWorkers}*\${gpus}))
        --max-np \$((\${maxWorkers}*\${gpus}))
        --start-timeout 100
        --elastic-timeout 1000
        --host-discovery-script /usr/local/bin/discover_hosts.sh
        python EXAMPLES/elastic/pytorch_synthetic_benchmark_elastic.py
        --num-iters=10000
        --num-warmup-batches=0"
"""
JOB = "elastic-training-synthetic"


def instances(shown: str) -> dict[str, str]:
    return {row["NAME"]: row["STATUS"] for row in table_under("NAME", shown)}


def iterations(logs: str) -> list[int]:
    return [
        int(n) for n in re.findall(r"\[\d+\]<stdout>:Iter #(\d+): [\d.]+ img/sec per GPU", logs)
    ]


def test_guide_1(tmp_path: Path) -> None:
    (tmp_path / "elastic").mkdir()
    script = tmp_path / "elastic" / "pytorch_synthetic_benchmark_elastic.py"
    script.write_text(SYNTHETIC)
    with Terminal(tmp_path) as terminal:
        # 2. Submit.
        said = terminal.types(SUBMIT.replace("EXAMPLES", str(tmp_path)))
        assert said.lines == [f"trainingjob.kai.alibabacloud.com/{JOB} created"]
        hint = f"You can run `arena get {JOB} --type etjob` to check the job status"
        for line in (f"The Job {JOB} has been submitted successfully", hint):
            assert re.search(rf"^INFO\[\d{{4}}\] {re.escape(line)}$", said.err, re.MULTILINE)

        # 3. List.
        listed = terminal.until("arena list", lambda out: "RUNNING" in out)
        header, row = listed.splitlines()
        assert header.split() == ["NAME", "STATUS", "TRAINER", "AGE", "NODE"]
        assert row.split()[:3] == [JOB, "RUNNING", "ETJOB"]

        # 4. Get.
        workers = {f"{JOB}-worker-{n}": "Running" for n in range(3)}
        shown = terminal.until(
            f"arena get {JOB}",
            lambda out: instances(out) == {f"{JOB}-launcher": "Running", **workers},
        )
        assert re.search(r"^Status: +RUNNING$", shown, re.M)
        assert re.search(r"^Trainer: +ETJOB$", shown, re.M)

        # 5. Logs.
        logs = f"arena logs {JOB} --tail 10"
        first = iterations(terminal.until(logs, lambda out: len(iterations(out)) >= 3))

        # 6. Scale out. 7. Get. 8. Logs.
        said = terminal.types(f'arena scaleout etjob --name="{JOB}" --count=1 --timeout=1m')
        (created,) = said.lines
        assert re.fullmatch(rf"scaleout\.kai\.alibabacloud\.com/{JOB}-\d+ created", created)
        operation = created.split("/")[1].split()[0]
        submitted = f"The scaleout job {operation} has been submitted successfully"
        assert re.search(rf"^INFO\[\d{{4}}\] {re.escape(submitted)}$", said.err, re.MULTILINE)
        more = {**workers, f"{JOB}-worker-3": "Running"}
        grown = terminal.until(
            f"arena get {JOB}",
            lambda out: "succeeded" in out and more.items() <= instances(out).items(),
        )
        assert re.search(rf"{operation} +scaleout +3 +4 +succeeded", grown)
        second = iterations(terminal.until(logs, lambda out: len(iterations(out)) >= 5))
        assert second[-1] > first[-1]
        status = terminal.types(f"midflight status {JOB}").out
        assert re.search(r"^members: +4 of 4 wanted$", status, re.M)

        # 9. Scale in: the newest leaves. 10. Get. 11. Logs.
        said = terminal.types(f'arena scalein etjob --name="{JOB}" --count=1 --timeout=1m')
        assert re.fullmatch(rf"scalein\.kai\.alibabacloud\.com/{JOB}-\d+ created", said.lines[0])
        shrunk = terminal.until(
            f"arena get {JOB}",
            lambda out: instances(out) == {f"{JOB}-launcher": "Running", **workers},
        )
        assert re.search(r"scalein +4 +3 +succeeded", shrunk)
        third = iterations(terminal.until(logs, lambda out: len(iterations(out)) >= 5))
        assert third[-1] > second[-1]

        # No step was repeated by anybody on the way, and no sample lost.
        every = iterations(terminal.types(f"arena logs {JOB}").out)
        assert every == list(range(1, len(every) + 1))
        assert "every sample was used exactly once" in terminal.types(f"midflight audit {JOB}").out
        terminal.types(f"arena delete {JOB}")
        assert terminal.types("arena list").lines == ["NAME  STATUS  TRAINER  AGE  NODE"]
