"""Whatever happens, in an order that a seed decides: the job ends with the right result.

Twenty strikes are what twenty minutes bring at one a minute; here each follows as soon as the job
has got over the one before. MIDFLIGHT_CHAOS_ACTIONS and MIDFLIGHT_CHAOS_SEED make it longer, and
another one.
"""

import os
import random
from collections.abc import Callable

import pytest

from midflight.protocol.messages import Status
from tests.kubernetes.running.jobs import Jobs
from tests.kubernetes.running.operators import Operators
from tests.kubernetes.running.training import members, wait_members

ACTIONS = int(os.environ.get("MIDFLIGHT_CHAOS_ACTIONS", "20"))
SEED = int(os.environ.get("MIDFLIGHT_CHAOS_SEED", "5"))
EPOCHS = 120 * ACTIONS  # at half a second each, more than there can be
LEAST, MOST = 2, 4
NODES = ("node-0", "node-1", "node-2")
KINDS = (
    *("Pod", "Service", "Secret", "ServiceAccount", "ConfigMap", "ScaleOut", "ScaleIn"),
    *("NetworkPolicy", "Role", "RoleBinding", "PodDisruptionBudget"),
)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(60 + 60 * ACTIONS)]


class Chaos:
    """Each action leaves at least one member that holds the training's state."""

    def __init__(self, jobs: Jobs, operators: Operators) -> None:
        self.jobs = jobs
        self.operators = operators
        self.random = random.Random(SEED)
        self.wanted = 3
        self.asked = 0
        self.done: list[str] = []
        self.settled: Status | None = None

    def strike(self) -> None:
        actions: list[Callable[[], str]] = [
            *(self.kill_worker, self.kill_launcher, self.lose_node),
            *(self.kill_operator, self.restart_api_server),
            *(self.scale, self.scale, self.evict_worker),
        ]
        self.done.append(self.random.choice(actions)())
        print(f"{len(self.done)}: {self.done[-1]}", flush=True)

    def settle(self) -> None:
        """Until all that are wanted train; then nobody's loss is the loss of everything."""
        seconds = 180  # for a node, and a launcher on it
        self.settled = wait_members(self.jobs, "chaos", self.wanted, seconds)
        self.jobs.cluster.nodes.start(*(n for n in NODES if n not in self.jobs.cluster.nodes.names))

    # --- what may happen --------------------------------------------------------------------

    def kill_worker(self) -> str:
        name = self.random.choice(sorted(self._workers()))
        self.jobs.delete_pod(name, grace=0)
        return f"{name} was killed"

    def evict_worker(self) -> str:
        name = self.random.choice(sorted(self._workers()))
        self.jobs.delete_pod(name)
        return f"{name} was told to go"

    def kill_launcher(self) -> str:
        self.jobs.delete_pod("chaos-launcher", grace=0)
        return "the launcher was killed"

    def lose_node(self) -> str:
        nodes = self._workers()
        there = sorted(set(nodes.values()))
        if len(there) < 2:
            return self.kill_worker()
        lost = self.random.choice(there)
        self.jobs.cluster.nodes.kill(lost)
        return f"{lost} was lost"

    def kill_operator(self) -> str:
        for name in self.operators.names:
            self.operators.kill(name)
        self.operators.start()
        return "the operator was killed"

    def restart_api_server(self) -> str:
        self.jobs.cluster.plane.restart_api_server()
        return "the API server was restarted"

    def scale(self) -> str:
        self.asked += 1
        larger = self.wanted < MOST and (self.wanted == LEAST or self.random.random() < 0.5)
        name = f"chaos-{self.asked}"
        if larger:
            self.jobs.scale_out("chaos", name, 1)
            self.jobs.check_scaled("ScaleOut", name)
        else:
            self.jobs.scale_in("chaos", name, count=1)
            self.jobs.check_scaled("ScaleIn", name)
        self.wanted += 1 if larger else -1
        return f"scaled {'out' if larger else 'in'} to {self.wanted}"

    def _workers(self) -> dict[str, str]:
        """Those whose members train, and where they are."""
        pods = self.jobs.pods()
        here = {member.host for member in members(self.settled)}
        return {name: pods[name]["spec"]["nodeName"] for name in here if name in pods}


def test_a_job_in_chaos_ends_with_the_right_result_and_leaves_no_object(
    jobs: Jobs, operators: Operators
):
    chaos = Chaos(jobs, operators)
    jobs.counting("chaos", workers=3, epochs=EPOCHS, least=1)
    chaos.settle()
    for _ in range(ACTIONS):
        chaos.strike()
        chaos.settle()
    jobs.hurry()
    jobs.wait_phase("chaos", "Succeeded", seconds=120)
    jobs.check_every_sample_once(EPOCHS)
    jobs.clear()
    for kind in KINDS:  # the garbage collector needs a moment
        jobs.cluster.wait_for_all(kind, jobs.namespace, _is_clean, 30)


def _is_clean(found: list) -> bool:
    return not any(thing["metadata"]["name"].startswith("chaos") for thing in found)
