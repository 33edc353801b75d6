"""Real training in pods: it is made larger and smaller, is struck, and every sample counts once."""

from pathlib import Path

import pytest

from tests.kubernetes.running.guide_terminal import ClusterTerminal
from tests.kubernetes.running.jobs import Jobs
from tests.kubernetes.running.training import wait_members

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
EPOCHS = 150  # more than enough at its pace; in a hurry they take a few seconds


def test_a_job_is_scaled_out_and_in_and_loses_a_node_and_every_sample_counts_once(jobs: Jobs):
    jobs.counting("count", workers=2, epochs=EPOCHS, apart=True)
    jobs.wait_training("count")
    jobs.scale_out("count", "count-1", 1)
    jobs.check_scaled("ScaleOut", "count-1")
    jobs.scale_in("count", "count-2", pods=["count-worker-0"])
    jobs.check_scaled("ScaleIn", "count-2")
    assert jobs.hostfile("count") == "count-worker-1:1\ncount-worker-2:1\n"
    spared, *lost = nodes_of(jobs, "count-launcher", "count-worker-1", "count-worker-2")
    jobs.cluster.nodes.kill(next(node for node in lost if node != spared))
    jobs.wait_training("count", "went on with")
    jobs.hurry()
    jobs.wait_phase("count", "Succeeded")
    jobs.check_every_sample_once(EPOCHS)


def test_the_launcher_is_lost_with_its_node_and_every_sample_counts_once(jobs: Jobs):
    jobs.counting("count", workers=2, epochs=EPOCHS, apart=True)
    jobs.wait_training("count")
    jobs.cluster.nodes.kill(*nodes_of(jobs, "count-launcher"))
    wait_members(jobs, "count", 2)
    jobs.hurry()
    jobs.wait_phase("count", "Succeeded")
    jobs.check_every_sample_once(EPOCHS)


def test_training_goes_on_while_the_launcher_is_gone_and_a_new_one_takes_over(
    jobs: Jobs, tmp_path: Path
):
    jobs.counting("count", workers=2, epochs=EPOCHS)
    jobs.wait_training("count")
    before = jobs.pod("count-launcher")["metadata"]["uid"]
    jobs.delete_pod("count-launcher", grace=0)
    jobs.cluster.wait_for(
        "Pod",
        jobs.namespace,
        "count-launcher",
        lambda pod: pod["metadata"]["uid"] != before and pod["status"]["phase"] == "Running",
    )
    jobs.wait_training("count", "resuming run count where it was interrupted")
    wait_members(jobs, "count", 2)
    with ClusterTerminal(jobs, tmp_path) as terminal:  # asked in the launcher's pod
        assert "every sample was used exactly once" in terminal.types("midflight audit count").out
    jobs.hurry()
    jobs.wait_phase("count", "Succeeded")
    jobs.check_every_sample_once(EPOCHS)


def nodes_of(jobs: Jobs, *pods: str) -> list[str]:
    return [jobs.pod(name)["spec"]["nodeName"] for name in pods]
