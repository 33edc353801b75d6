"""Guide 3 on the cluster, command by command: a pytorchjob whose code comes from git."""

import re
from pathlib import Path

import pytest

from tests.guides.terminal import table_under
from tests.guides.test_guide_3 import JOB, repository
from tests.kubernetes.running.guide_git import served
from tests.kubernetes.running.guide_terminal import ClusterTerminal
from tests.kubernetes.running.jobs import Jobs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SUBMIT = f"""
arena --loglevel info submit pytorch \\
        --name={JOB} \\
        --gpus=1 \\
        --workers=2 \\
        --image=registry.example/pytorch-with-tensorboard:1.5.1-cuda10.1-cudnn7-runtime \\
        --sync-mode=git \\
        --sync-source=SOURCE \\
        "python /root/code/mnist-pytorch/mnist.py --backend gloo"
"""


def variables(jobs: Jobs, pod: str) -> dict[str, str]:
    (container,) = jobs.pod(pod)["spec"]["containers"]
    wanted = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")
    return {each["name"]: each["value"] for each in container["env"] if each["name"] in wanted}


def test_guide_3_on_the_cluster(jobs: Jobs, tmp_path: Path) -> None:
    master = {"node-role.kubernetes.io/master": ""}
    jobs.cluster.nodes.start("control-0", capacity={"nvidia.com/gpu": "0"}, labels=master)
    with (
        served(repository(tmp_path / "mnist-pytorch"), tmp_path / "served") as source,
        ClusterTerminal(jobs, tmp_path) as terminal,
    ):
        # 1. The available resources.
        top = terminal.types("arena top node").out
        header, first, *_ = top.splitlines()
        assert re.split(r" {2,}", header.strip()) == [
            *("NAME", "IPADDRESS", "ROLE", "STATUS", "GPU(Total)", "GPU(Allocated)")
        ]
        assert re.fullmatch(r"control-0 +127\.\S+ +master +ready +0 +0", first.strip())
        rows = table_under("NAME", top)[1:]
        assert [row["NAME"] for row in rows] == ["node-0", "node-1", "node-2"]
        assert {row["ROLE"] for row in rows} == {"<none>"}
        assert {(row["STATUS"], row["GPU(Total)"]) for row in rows} == {("ready", "4")}
        assert top.endswith("Allocated/Total GPUs In Cluster:\n0/12 (0%)\n")

        # 2. Submit.
        said = terminal.types(SUBMIT.replace("SOURCE", source))
        assert said.lines == [f"pytorchjob.kubeflow.org/{JOB} created"]
        assert f"You can run `arena get {JOB} --type pytorchjob" in said.err

        # 3. List, when it is over.
        terminal.types(f"arena wait {JOB}")
        listed = terminal.types("arena list").out
        assert re.search(rf"^{JOB} +SUCCEEDED +PYTORCHJOB ", listed, re.M)

        # 4. Get: the master is one of the two, and each knows its place.
        shown = terminal.types(f"arena get {JOB}").out
        assert {row["NAME"]: row["STATUS"] for row in table_under("NAME", shown)} == {
            f"{JOB}-master-0": "Completed",
            f"{JOB}-worker-0": "Completed",
        }
        known = {"MASTER_ADDR": f"{JOB}-master-0", "MASTER_PORT": "23456", "WORLD_SIZE": "2"}
        assert variables(jobs, f"{JOB}-master-0") == {**known, "RANK": "0"}
        assert variables(jobs, f"{JOB}-worker-0") == {**known, "RANK": "1"}

        # 5. Logs: of rank 0 by default, of any instance by name, and only the end of it.
        logs = terminal.types(f"arena logs {JOB}").out
        assert "WORLD_SIZE: 2, CURRENT_RANK: 0" in logs
        assert "Using distributed PyTorch with gloo backend" in logs
        assert re.search(r"Train Epoch: 1 \[0/1000 \(0%\)\]\tloss=\d", logs)
        other = terminal.types(f"arena logs {JOB} -i {JOB}-worker-0").out
        assert "WORLD_SIZE: 2, CURRENT_RANK: 1" in other
        last = terminal.types(f"arena logs {JOB} -i {JOB}-worker-0 -t 5").out
        epochs = r"(Train Epoch: 1 \[\d+/1000 \(\d+%\)\]\tloss=\d\.\d+\n){2}"
        assert re.fullmatch(rf"{epochs}\naccuracy=[01]\.\d+\n\n", last)

        # Nothing of it holds a GPU any more.
        assert terminal.types("arena top node").out.endswith("0/12 (0%)\n")
        terminal.types(f"arena delete {JOB}")
