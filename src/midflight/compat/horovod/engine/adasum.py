"""Adasum: gradients that agree are averaged, gradients that are orthogonal are added.

Two vectors a and b become a(1 - ab/2aa) + b(1 - ab/2bb); more than two are combined pairwise, in a
tree, so that their number has to be a power of two.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def adasum(vectors: Sequence[Tensor]) -> Tensor:
    level = list(vectors)
    if len(level) & (len(level) - 1):
        raise NotImplementedError(
            f"Running Adasum with non-power of 2 ranks is not supported yet, there are {len(level)}"
        )
    while len(level) > 1:
        level = [_pair(level[i], level[i + 1]) for i in range(0, len(level), 2)]
    return level[0]


def _pair(a: Tensor, b: Tensor) -> Tensor:
    x, y = a.reshape(-1).double(), b.reshape(-1).double()
    dot, xx, yy = torch.dot(x, y), torch.dot(x, x), torch.dot(y, y)
    left = 1 - dot / (2 * xx) if xx > 0 else 1.0
    right = 1 - dot / (2 * yy) if yy > 0 else 1.0
    return (left * x + right * y).to(a.dtype).reshape(a.shape)
