"""The modules' buffers (BatchNorm's statistics, say): rank 0's after each step, undone with it.

A forward pass changes buffers, and a step that did not happen must leave no trace in them. Where
gradients are averaged, buffers are broadcast at the end of each step as flat tensors, one for each
kind, and those tensors are what the next step began with. So nothing is copied for the sake of a
repeated step, unless somebody has changed a buffer since the last copy, which the tensors' version
counters tell: the script between two steps, or, where nothing is broadcast, the step itself.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from midflight.runtime import torch_private
from midflight.runtime.group.process_group import Group

Values = list[Tensor]  # flat, one for each kind of buffers


class Buffers:
    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        buffers = (b for m in modules.values() for b in m.buffers() if not is_lazy(b))
        kinds = by_kind(b for b in buffers if b.layout == torch.strided and b.numel())
        self._kinds = list(kinds.values())
        self._before: Values = []  # as they were when the step under way began
        self._after: Values = []  # as that step leaves them, if it completes
        self._versions: list[int] = []  # of all buffers, when `_after` was made
        self._under_way = False

    def begin(self) -> None:
        """A step begins, perhaps the same one again."""
        versions = self._count_changes()
        if not self._after or self._versions != versions:
            self._after, self._versions = self.values(), versions
        self._before, self._after = self._after, []
        self._under_way = True

    def complete(self) -> None:
        if self._under_way and not self._after and self._versions == self._count_changes():
            self._after = self._before  # the step has left them alone
        self._under_way = False

    def rewind(self) -> None:
        """The step under way, if one is, did not happen."""
        if self._under_way:
            self.put(self._before)
        self.forget()

    def forget(self) -> None:
        """Nothing is under way, and what the buffers hold is not known any more."""
        self._under_way = False
        self._before, self._after = [], []

    def restart(self) -> None:
        """Begin the step's next part with what the step began with."""
        self.put(self._before)

    def share(self, group: Group | None, values: Values | None = None) -> None:
        """Everybody takes rank 0's: its `values`, or what its buffers hold now.

        If that fails the buffers are as they were.
        """
        as_they_are = values is None and (group is None or group.rank == 0)
        values = self.values() if values is None else values
        if group is not None and group.size > 1:
            group.broadcast_all([flat.view(torch.uint8) for flat in values], 0)
        if not as_they_are:
            self.put(values)
        self._after, self._versions = values, self._count_changes()

    @torch.no_grad()
    def values(self) -> Values:
        return [  # of a single tensor torch makes no copy
            torch_private.flatten(kind) if len(kind) > 1 else kind[0].reshape(-1).clone()
            for kind in self._kinds
        ]

    @torch.no_grad()
    def put(self, values: Values) -> None:
        for kind, flat in zip(self._kinds, values, strict=True):
            torch_private.copy_each(kind, torch_private.unflatten(flat, kind))

    def _count_changes(self) -> list[int]:
        return torch_private.versions(buffer for kind in self._kinds for buffer in kind)


def by_kind(tensors: Iterable[Tensor]) -> dict[Any, list[Tensor]]:
    """Those of one device and type, which can lie in one flat tensor, in their order."""
    kinds: dict[Any, list[Tensor]] = {}
    for tensor in tensors:
        kinds.setdefault((tensor.device, tensor.dtype), []).append(tensor)
    return kinds
