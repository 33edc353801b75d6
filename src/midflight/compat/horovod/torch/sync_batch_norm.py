"""Batch normalisation over the batches of all ranks.

Horovod's accepts GPU tensors only; this one takes either. The statistics are exact sums over all
ranks, so that ranks may have batches of different sizes, and autograd goes through them.
"""

import torch
from torch import Tensor

from midflight.compat.horovod.common.basics import size
from midflight.compat.horovod.torch import mpi_ops as ops
from midflight.compat.horovod.torch.autograd import allreduce
from midflight.runtime.torch_private import BatchNormBase


class SyncBatchNorm(BatchNormBase):
    """In training and with several ranks, normalises over all of them."""

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        if not (self.training or not self.track_running_stats) or size() == 1:
            return super().forward(input)
        axes = [0, *range(2, input.dim())]
        count = input.numel() / input.shape[1]
        sums = torch.cat(
            [input.sum(axes), (input * input).sum(axes), input.new_full((1,), float(count))]
        )
        sums = allreduce(sums, name=None, op=ops.Sum)
        channels = input.shape[1]
        total = sums[-1]
        mean = sums[:channels] / total
        variance = sums[channels : 2 * channels] / total - mean * mean
        self._remember(mean.detach(), variance.detach(), float(total.item()))
        shape = [1, channels] + [1] * (input.dim() - 2)
        result = (input - mean.view(shape)) * torch.rsqrt(variance.view(shape) + self.eps)
        if self.affine:
            result = result * self.weight.view(shape) + self.bias.view(shape)
        return result

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor, total: float) -> None:
        if not self.training or not self.track_running_stats:
            return
        assert self.running_mean is not None and self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        share = self.momentum
        if share is None:
            share = 1.0 / float(self.num_batches_tracked)
        unbiased = variance * (total / max(total - 1, 1))
        self.running_mean.mul_(1 - share).add_(mean, alpha=share)
        self.running_var.mul_(1 - share).add_(unbiased, alpha=share)
