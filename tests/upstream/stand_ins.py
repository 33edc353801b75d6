"""Runs a script with small made-up data and models in the place of what it would download.

`python stand_ins.py SCRIPT [ARGUMENT...]`. torchvision, tqdm and TensorBoard's writer are stood in
for where they are not installed; so are the numbers of MNIST in Keras.
"""

import importlib.util
import runpy
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

SAMPLES = 256


def torchvision() -> None:
    import torch
    from torch import nn

    class Images(torch.utils.data.Dataset[Any]):
        def __init__(self, *shape: int, classes: int) -> None:
            generator = torch.Generator().manual_seed(1)
            self._images = torch.randn(SAMPLES, *shape, generator=generator)
            self._labels = torch.randint(classes, (SAMPLES,), generator=generator)

        def __len__(self) -> int:
            return SAMPLES

        def __getitem__(self, index: int) -> Any:
            return self._images[index], int(self._labels[index])

    def model(*_: Any, **__: Any) -> nn.Module:
        pool = nn.AdaptiveAvgPool2d(4)
        return nn.Sequential(nn.Conv2d(3, 4, 7, 4), pool, nn.Flatten(), nn.Linear(64, 1000))

    datasets = SimpleNamespace(
        MNIST=lambda *_, **__: Images(1, 28, 28, classes=10),
        ImageFolder=lambda *_, **__: Images(3, 32, 32, classes=1000),
    )
    names = ("CenterCrop", "Compose", "Normalize", "RandomHorizontalFlip", "RandomResizedCrop")
    transforms = {name: lambda *_, **__: None for name in (*names, "Resize", "ToTensor")}
    _install("torchvision", datasets=datasets, transforms=SimpleNamespace(**transforms),
             models=SimpleNamespace(resnet50=model))  # fmt: skip


def tqdm() -> None:
    class Bar:
        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        def __enter__(self) -> "Bar":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def update(self, *_: Any) -> None:
            pass

        set_postfix = update

    Bar.set_postfix = lambda self, *_, **__: None
    _install("tqdm", tqdm=Bar)


def tensorboard() -> None:
    writer = SimpleNamespace(add_scalar=lambda *_: None)
    _install("torch.utils.tensorboard", SummaryWriter=lambda *_: writer)


def mnist() -> None:
    import tensorflow as tf

    random = np.random.default_rng(1)
    images = random.integers(0, 256, (SAMPLES, 28, 28), dtype=np.uint8)
    labels = random.integers(0, 10, SAMPLES, dtype=np.uint8)
    tf.keras.datasets.mnist.load_data = lambda *_, **__: ((images, labels), (images, labels))


def _install(name: str, **content: Any) -> None:
    if name in sys.modules:
        return
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)  # others ask whether it is there
    module.__dict__.update(content)
    sys.modules[name] = module


def main(script: str) -> None:
    for name, stand_in in (("torchvision", torchvision), ("tqdm", tqdm)):
        if importlib.util.find_spec(name) is None:
            stand_in()
    if importlib.util.find_spec("tensorboard") is None:
        tensorboard()
    if "tensorflow" in script or "keras" in script:
        mnist()
    sys.argv = sys.argv[1:]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1])
