"""Horovod's own examples, as upstream wrote them, on small made-up data.

They are not part of this project. They are looked for in `$MIDFLIGHT_UPSTREAM/horovod/examples`, or
in `shared/upstream` beside the checkout, and skipped where they are not. A script that has no flag
for it is made shorter, in the numbers that are named here and in nothing else.
"""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.horovod_tensorflow.programs import KERAS_2, needs_tensorflow, prepare
from tests.horovodrun.shell import horovodrun
from tests.run.site import Launched, Site, eventually

ROOT = Path(__file__).resolve().parents[2]
UPSTREAM = Path(os.environ.get("MIDFLIGHT_UPSTREAM", ROOT.parent / "shared" / "upstream"))
EXAMPLES = UPSTREAM / "horovod" / "examples"
STAND_INS = str(Path(__file__).with_name("stand_ins.py"))
PATIENCE = 120.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not EXAMPLES.is_dir(), reason=f"Horovod's examples are not in {EXAMPLES}"),
]

BENCHMARK = ("--num-warmup-batches=1", "--num-batches-per-iter=1", "--num-iters=2", "--no-cuda")
IMAGENET = ("--epochs=2", "--batch-size=32", "--val-batch-size=64", "--warmup-epochs=1")
MOBILE = ("--model=MobileNet", "--batch-size=2", "--num-batches-per-iter=1", "--num-iters=2")

TORCH = {
    "pytorch/pytorch_mnist.py": ("--epochs=2",),
    "pytorch/pytorch_imagenet_resnet50.py": IMAGENET,
    "pytorch/pytorch_synthetic_benchmark.py": (*BENCHMARK, "--batch-size=4"),
    "adasum/adasum_small_model.py": ("--op=Adasum",),
}
TORCH_ELASTIC = {
    "elastic/pytorch/pytorch_mnist_elastic.py": ("--epochs=1000",),
    "elastic/pytorch/pytorch_imagenet_resnet50_elastic.py": ("--epochs=1000", *IMAGENET[1:]),
    "elastic/pytorch/pytorch_synthetic_benchmark_elastic.py": (
        *("--num-iters=100000", "--batch-size=4", "--num-batches-per-iter=1"),
    ),
}
TENSORFLOW = {
    "tensorflow2/tensorflow2_mnist.py": (),
    "tensorflow2/tensorflow2_keras_mnist.py": (),
    "tensorflow2/tensorflow2_synthetic_benchmark.py": (*MOBILE, "--num-warmup-batches=1"),
    "tensorflow2/tensorflow2_keras_synthetic_benchmark.py": MOBILE,
}
TENSORFLOW_ELASTIC = {
    "elastic/tensorflow2/tensorflow2_mnist_elastic.py": (),
    "elastic/tensorflow2/tensorflow2_keras_mnist_elastic.py": (),
    "elastic/tensorflow2/tensorflow2_synthetic_benchmark_elastic.py": (
        *(*MOBILE[:3], "--num-iters=100000"),
    ),
}
SESSIONS = (
    "keras/keras_mnist.py",
    "keras/keras_imagenet_resnet50.py",
    "elastic/tensorflow/tensorflow_keras_mnist_elastic.py",
)
SHORTER = {
    "tensorflow2/tensorflow2_mnist.py": [("10000 //", "30 //")],
    "tensorflow2/tensorflow2_keras_mnist.py": [("500 //", "6 //"), ("epochs=24", "epochs=4")],
    "elastic/tensorflow2/tensorflow2_mnist_elastic.py": [("take(100 //", "take(100000 //")],
}


def start(site: Site, example: str, *words: str, np: int = 2, hosts: str = "") -> Launched:
    """With a list of hosts that is read again every second, or without."""
    prepare(site, KERAS_2)
    text = (EXAMPLES / example).read_text()
    for old, new in SHORTER.get(example, ()):
        assert old in text, f"{example} is another one than it was"
        text = text.replace(old, new)
    script = site.folder / Path(example).name
    script.write_text(text)
    site.env |= {"HOME": str(site.folder), "HOROVOD_START_TIMEOUT": "100"}
    flags = ("--host-discovery-script", f"cat {hosts}") if hosts else ()
    command = (sys.executable, STAND_INS, str(script), *words)
    return horovodrun(site, "-np", str(np), *flags, *command)


def come_to_their_end(site: Site, example: str, words: tuple[str, ...]) -> None:
    run = start(site, example, *words)
    assert run.ends(PATIENCE) == 0, run.lines


def step(site: Site, run: Launched) -> int:
    """How often all processes have committed, or looked for other hosts."""
    name = next(line.split()[-1] for line in run.lines if "this run is named" in line)
    return int(json.loads(site.command("status", name, "-o", "json").stdout)["step"])


def grow(site: Site, example: str, words: tuple[str, ...]) -> None:
    """From one process to two, and the two go on."""
    listing = site.folder / "hosts"
    listing.write_text("localhost:1\n")
    run = start(site, example, *words, np=1, hosts=str(listing))
    run.says("training with 1 member", within=PATIENCE)
    listing.write_text("localhost:2\n")
    run.says("resized from 1 to 2", within=PATIENCE)
    begun = step(site, run)
    eventually(lambda: step(site, run) > begun + 3, within=PATIENCE)
    run.send(signal.SIGINT)
    assert run.ends(60) == 130
    assert not any("Error" in line for line in run.lines), run.lines


@pytest.mark.parametrize("example", TORCH)
def test_an_example_for_torch_comes_to_its_end(site: Site, example: str) -> None:
    come_to_their_end(site, example, TORCH[example])


@pytest.mark.parametrize("example", TORCH_ELASTIC)
def test_an_elastic_example_for_torch_grows(site: Site, example: str) -> None:
    grow(site, example, TORCH_ELASTIC[example])


@needs_tensorflow
@pytest.mark.parametrize("example", TENSORFLOW)
def test_an_example_for_tensorflow_comes_to_its_end(site: Site, example: str) -> None:
    come_to_their_end(site, example, TENSORFLOW[example])


@needs_tensorflow
@pytest.mark.parametrize("example", TENSORFLOW_ELASTIC)
def test_an_elastic_example_for_tensorflow_grows(site: Site, example: str) -> None:
    grow(site, example, TENSORFLOW_ELASTIC[example])


@needs_tensorflow
@pytest.mark.parametrize("example", SESSIONS)
def test_an_example_with_a_session_is_told_where_to_read_on(site: Site, example: str) -> None:
    run = start(site, example, np=1)
    assert run.ends(PATIENCE) == 1
    assert "coming-from-horovod.md#tensorflow-1" in "\n".join(run.lines), run.lines
