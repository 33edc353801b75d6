"""Programs that use TensorFlow, started as members of a real run."""

import importlib.util
import sys
from pathlib import Path

import pytest

from tests.run.site import SOURCES, Launched, Site

HERE = Path(__file__).resolve().parent
PATIENCE = 100.0  # seconds; TensorFlow takes its time on a loaded machine

needs_tensorflow = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None,
    reason="TensorFlow is not installed; it is in the extra `tensorflow`",
)
KERAS_3, KERAS_2 = "0", "1"  # TF_USE_LEGACY_KERAS
AGES = [
    pytest.param(KERAS_3, id="keras 3"),
    pytest.param(KERAS_2, id="keras 2", marks=pytest.mark.skipif(
        importlib.util.find_spec("tf_keras") is None,
        reason="tf-keras is not installed; it is in the extra `tensorflow`",
    )),
]  # fmt: skip


def prepare(site: Site, keras: str = KERAS_3) -> None:
    """What training processes find in their environment."""
    folder = site.folder / "temporary"  # TensorFlow leaves files there when it is killed
    folder.mkdir(exist_ok=True)
    site.env |= {
        "TMPDIR": str(folder),
        "PYTHONPATH": f"{SOURCES / 'midflight/shims/python'}:{SOURCES}",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_NUM_INTRAOP_THREADS": "1",
        "TF_NUM_INTEROP_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_USE_LEGACY_KERAS": keras,
    }


def start(site: Site, program: Path, *flags: str, keras: str = KERAS_3) -> Launched:
    prepare(site, keras)
    return site.launch("--name", "digits", *flags, "--", sys.executable, str(program))
