"""KungFu's Python API in real training processes."""

import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from midflight.compat.kungfu.config import ConfigStoreClient
from midflight.errors import Refused
from tests.horovod_tensorflow.programs import AGES, KERAS_2
from tests.kungfu.commands import Commands

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

HERE = Path(__file__).parent


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def test_collectives_and_optimizers_compute_what_one_process_computes(commands: Commands) -> None:
    done = commands.finish("kungfu-run", "-np", "3", sys.executable, str(HERE / "all_at_once.py"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all of it agrees") == 3
    assert done.stderr.count("gradients are averaged over the workers, where KungFu adds") == 1


def test_scripts_run_alone_too(commands: Commands) -> None:
    words = [sys.executable, str(HERE / "trainee.py"), "--steps", "3"]
    done = subprocess.run(words, env=commands.env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "done 3 with" in done.stdout


def test_a_schedule_is_followed_by_asking_the_coordinator(commands: Commands) -> None:
    run = commands.start(
        *("kungfu-run", "-w", "-np", "1", "-warm", "1"),
        *(sys.executable, str(HERE / "asker.py"), "schedule"),
    )
    run.says("step 3 np=2 30", times=2, within=80)
    run.says("step 7 np=1 110", within=80)
    run.says("due to finished", within=80)
    assert run.ends(60) == 0, run.lines
    assert any("resize 1 -> 2 took" in line for line in run.lines)
    assert any("due to change cluster" in line for line in run.lines)


def test_sizes_that_a_script_asks_for_are_in_the_store_too(commands: Commands) -> None:
    port, debug_port = free_port(), free_port()
    run = commands.start(
        *("kungfu-run", "-q", "-w", "-np", "1", "-warm", "1", "-builtin-config-port", str(port)),
        *("-k", "-debug-port", str(debug_port), sys.executable, str(HERE / "asker.py"), "hand"),
    )
    run.says("resize says True, False", within=60)
    run.says("after the proposal: True, True", within=80)  # by the next resize(), for both
    run.says("after the proposal: True, False", within=80)
    run.says("<stdout>:detached", within=80)
    run.says("<stdout>:finished", within=80)
    run.says("-k keeps this process", within=60)
    url, token = f"http://127.0.0.1:{port}/config", commands.home / f"kungfu-{port}.token"
    found = ConfigStoreClient(url, str(token), timeout=5.0).get()
    assert found is not None
    with pytest.raises(Refused, match="401"):
        ConfigStoreClient(url, timeout=5.0).put(found.cluster)
    assert len(found.cluster.workers) == 1
    assert found.version == 3
    with urlopen(f"http://127.0.0.1:{debug_port}/", timeout=5) as answer:
        stages = json.load(answer)
    assert [stage["Version"] for stage in stages][:2] == [1, 2]
    assert [len(stage["Cluster"]["Workers"]) for stage in stages][:2] == [1, 2]
    run.send(15)
    assert run.ends(60) == 0
    assert not token.exists()


@pytest.mark.parametrize("keras", AGES)
def test_the_hook_for_keras_averages_models_and_hands_them_to_newcomers(
    commands: Commands, keras: str
) -> None:
    pytest.importorskip("keras", reason="Keras is not installed; `make test` installs it")
    commands.env["TF_USE_LEGACY_KERAS"] = keras
    run = commands.start("kungfu-run", "-w", sys.executable, str(HERE / "keras_script.py"))
    run.says("steps 12 counted 12 weights", times=2, within=80)  # 4 alone, 8 in pairs
    assert run.ends(60) == 0, run.lines
    weights = [line.partition("weights ")[2] for line in run.lines if "weights " in line]
    assert weights[0] == weights[1]


@pytest.mark.parametrize("keras", AGES)
def test_tensorflow_2_trains_and_is_resized_and_an_estimator_is_told_what_it_needs(
    commands: Commands, keras: str
) -> None:
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed; `make test` does")
    commands.env["TF_USE_LEGACY_KERAS"] = keras
    done = commands.finish(
        *("kungfu-run", "-w", "-np", "1", "-warm", "1"),
        *(sys.executable, str(HERE / "tensorflow_script.py")),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout
    assert said.count("elastic: 12 np=2 counted 12 same True") == 2, said
    assert said.count("fit with SynchronousSGDOptimizer: same True learns True") == 2
    assert said.count("fit with SynchronousAveragingOptimizer: same False learns True") == 2
    assert said.count("fit with PairAveragingOptimizer: same False learns True") == 2
    assert said.count("tape: same True") == 2
    assert said.count("moved by the mean of gradients 1 and 2: 1.5") == 2
    assert "KungFu adds them up" not in done.stderr, "not for TensorFlow"
    assert said.count("sum 3 of rank 0: 5") == 2
    for gone in ("estimator", "Session", "train.AdamOptimizer"):
        assert said.count(f"tf.{gone} needs TensorFlow 1") == 2
    assert said.count("coming-from-kungfu.md#tensorflow-1") == 6


def test_scripts_that_keep_checkpoints_may_use_both_ages_of_keras(commands: Commands) -> None:
    """As KungFu's do: `import keras` is Keras 3, `tf.keras` is Keras 2."""
    pytest.importorskip("tf_keras", reason="tf-keras is not installed; `make test` does")
    commands.env["TF_USE_LEGACY_KERAS"] = KERAS_2
    script = str(HERE / "checkpoint_script.py")
    done = commands.finish("kungfu-run", "-np", "2", sys.executable, script)
    assert done.returncode == 0, done.stdout + done.stderr
    for said in (
        "checkpoints of keras: same True wrote True",
        "checkpoints of tf.keras: same True wrote True",
        "three.keras: kept True, a plain optimizer True, counted 8",
        "three.h5: kept True, a plain optimizer True, counted 8",
        "two.h5: kept True, a plain optimizer True, counted 8",
        "hook of keras: same True",
        "hook of tf.keras: same True",
    ):
        assert done.stdout.count(said) == 2, (said, done.stdout)


LAUNCHES = """
from kungfu.cmd import launch_multiprocess
def work(rank):
    from kungfu.python import all_reduce_int_sum, current_rank
    print("rank", rank == current_rank(), "sum", all_reduce_int_sum(rank + 1), flush=True)
launch_multiprocess(work, 2)
print("both have ended", flush=True)
"""


def test_a_script_can_launch_its_workers_itself(commands: Commands) -> None:
    words = [sys.executable, "-c", LAUNCHES]
    done = subprocess.run(
        words, env=commands.env, cwd=commands.folder, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("rank True sum 3") == 2
    assert done.stdout.count("both have ended") == 1


def test_the_example_learns_while_it_is_resized(commands: Commands) -> None:
    example = HERE.parents[1] / "examples" / "11-kungfu-slp" / "train.py"
    done = commands.finish(
        *("kungfu-run", "-w", sys.executable, str(example), "--steps", "150"),
        *("--schedule", "1:50,2:50,1:50"),
    )
    assert done.returncode == 0, done.stderr
    assert "step 50: rank 1 of 2" in done.stdout
    assert "step 100: no longer needed" in done.stdout
    (accuracy,) = re.findall(r"finished after 150 steps, accuracy ([0-9.]+)", done.stdout)
    assert float(accuracy) > 0.9
