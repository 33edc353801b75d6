"""The state of the random number generators that a training script uses without naming them.

torch's own (on the CPU and on each CUDA device that is in use), Python's `random`, and numpy's
global one where numpy is loaded. Generators that a script made itself are its own to carry.
"""

import random
import struct
import sys
from typing import Any

import torch


def capture_rng() -> dict[str, Any]:
    """The generators' states now; a plain tree with tensors."""
    state: dict[str, Any] = {"torch": torch.get_rng_state(), "python": _packed(random.getstate())}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state_all()
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        state["numpy"] = numpy_random.get_state(legacy=False)
    return state


def restore_rng(state: dict[str, Any]) -> None:
    """Set the generators that this process has; devices and libraries it lacks are left out."""
    torch.set_rng_state(state["torch"])
    random.setstate(_unpacked(*state["python"]))
    if "cuda" in state and torch.cuda.is_available():
        for index, device_state in enumerate(state["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(device_state, index)
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None and "numpy" in state:
        numpy_random.set_state(state["numpy"])


def _packed(state: tuple[Any, ...]) -> tuple[int, bytes, float | None]:
    """Python's generator has 625 words: as bytes they cost nothing to write down."""
    version, words, gauss = state
    return version, struct.pack(f"<{len(words)}I", *words), gauss


def _unpacked(version: int, words: bytes, gauss: float | None) -> tuple[Any, ...]:
    return version, struct.unpack(f"<{len(words) // 4}I", words), gauss
