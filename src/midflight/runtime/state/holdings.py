"""Everything a session carries from member to member, captured and put back.

Objects with `state_dict` and `load_state_dict`, the plain values of `job.state`, the random number
generators, and whatever the session adds. Capturing copies nothing. A module's parameters and
buffers are received in the module's own memory; what an optimizer holds arrives in new tensors that
the optimizer then keeps, so nothing is copied twice and no optimizer takes a step to make room.
Tensors of a module that its state_dict does not list (non-persistent buffers, say) travel too:
members must not differ in anything. Whether two members' models match at all is `describe`'s and
`difference`'s to say, before any state moves.
"""

import gc
import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from midflight.errors import StateError
from midflight.runtime.state.layout import Home, Layout, Prepared, Slot, Snapshot, layout_of
from midflight.runtime.state.loading import listed_by, load, load_unlisted, tensors_of
from midflight.runtime.state.rng import capture_rng, restore_rng
from midflight.runtime.state.tree import number_of, pack, unpack

VALUES, RNG, EXTRA, UNLISTED = "job.state", "job.rng", "job.extra", "job.unlisted"
Description = tuple[str, tuple[int, ...], str]
"""A parameter's name, shape and dtype."""


@contextmanager
def without_collections() -> Iterator[None]:
    """Thousands of small objects are made in a pause; looking for garbage meanwhile doubles it."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class Holdings:
    """The named objects and plain values that make up a member's training state."""

    def __init__(self, objects: Mapping[str, object], values: dict[str, Any] | None = None) -> None:
        self.values = {} if values is None else values
        self._objects: dict[str, Any] = dict(objects)
        self._modules = {n: o for n, o in self._objects.items() if isinstance(o, nn.Module)}
        for name, held in self._objects.items():
            methods = (getattr(held, "state_dict", None), getattr(held, "load_state_dict", None))
            if name.startswith("job.") or not all(callable(method) for method in methods):
                raise StateError(
                    f"{name}: a {type(held).__name__} without state_dict and load_state_dict "
                    "cannot be carried; keep plain values in job.state"
                )

    @without_collections()
    def capture(self, extra: Mapping[str, Any]) -> Snapshot:
        """The state as it is now, by reference: it holds until the next step changes it."""
        housed: dict[int, tuple[Tensor, Home]] = {}
        tree: dict[str, Any] = {UNLISTED: {}}
        for name, held in self._objects.items():
            if name not in self._modules:
                tree[name] = held.state_dict()
                continue
            own = tensors_of(held)
            tree[name] = state = listed_by(held, own)
            tree[UNLISTED][name] = {k: t for k, t in own.items() if k not in state}
            for key, tensor in own.items():
                if state.get(key, tensor) is tensor and not is_lazy(tensor):
                    housed.setdefault(id(tensor), (tensor, (name, key)))
        tree |= {VALUES: self.values, EXTRA: dict(extra)}
        packed = pack(tree, known=[tensor for tensor, _ in housed.values()])
        rng = pack(capture_rng(), known=packed.tensors)
        homes = [home for _, home in housed.values()]
        return Snapshot(
            packed.blob[:-1] + f',"{RNG}":'.encode() + rng.blob + b"}",
            rng.tensors,
            layout_of(rng.tensors, homes),
            number_of(packed.blob),
            self._common(packed.tensors),
        )

    def _common(self, tensors: Sequence[Tensor]) -> tuple[int, ...]:
        """All but modules' buffers: an attempt at a step may have touched those on some members
        only, and rank 0's replace them all at the end of each step."""
        buffers = {id(buffer) for module in self._modules.values() for buffer in module.buffers()}
        return tuple(n for n, tensor in enumerate(tensors) if id(tensor) not in buffers)

    def trained(self, snapshot: Snapshot) -> tuple[int, ...]:
        """The numbers of the tensors that optimizers change: parameters, and their own."""
        own = {id(p) for module in self._modules.values() for p in module.parameters()}
        for held in self._objects.values():
            if isinstance(held, torch.optim.Optimizer):
                own |= {id(item) for state in held.state.values() for item in state.values()}
        return tuple(n for n, tensor in enumerate(snapshot.tensors) if id(tensor) in own)

    def prepare(
        self, layout: Layout, *, in_place: bool = True, spare: Prepared | None = None
    ) -> Prepared:
        """Make room for a snapshot of that layout, using the room of `spare` again where it fits.

        In place, a transfer that breaks off leaves torn weights behind. A member with a state worth
        keeping (a survivor that is a step behind) says `in_place=False` and pays one copy more.
        """
        own = {(n, k): t for n, m in self._modules.items() for k, t in tensors_of(m).items()}
        pool = _spare_room(spare, {id(tensor) for tensor in own.values()})
        taken: dict[int, Home] = {}
        tensors: list[Tensor] = []
        for slot in layout.slots:
            home = own.get(slot.home) if slot.home and in_place else None
            if slot.home and home is not None and not is_lazy(home) and slot.fits(home):
                _claim(taken, home, slot.home)
                tensors.append(home)
                continue
            found = pool.get(slot[:4])
            tensors.append(found.pop() if found else slot.empty(self._device(slot)))
        return Prepared(layout, tensors)

    @without_collections()
    def restore(self, snapshot: Snapshot, *, rng: bool = True) -> dict[str, Any]:
        """Take a received state over; returns what the giver passed to `capture`."""
        tree = unpack(snapshot.blob, [tensor.detach() for tensor in snapshot.tensors])
        self._check_names(tree)
        ordered = sorted(self._objects.items(), key=lambda item: _turn(item[1]))
        for name, held in ordered:
            try:
                load(held, tree[name])
                if name in self._modules:
                    load_unlisted(held, tree[UNLISTED][name])
            except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
                raise StateError(
                    f"{name}: {type(held).__name__} does not take the state of the other members "
                    f"({error}); build it with the same arguments on all of them"
                ) from error
        self.values.clear()
        self.values.update(tree[VALUES])
        if rng:
            restore_rng(tree[RNG])
        return dict(tree[EXTRA])

    def describe(self) -> list[Description]:
        """The parameters of all modules; members can train together if theirs are equal."""
        several = len(self._modules) > 1
        return [
            (f"{name}.{key}" if several else key, *_shape_and_dtype(parameter))
            for name, module in self._modules.items()
            for key, parameter in module.named_parameters()
        ]

    @property
    def fingerprint(self) -> str:
        """Equal on two members whose `describe()` is equal."""
        return hashlib.sha256(json.dumps(self.describe()).encode()).hexdigest()

    def _device(self, slot: Slot) -> torch.device:
        """Where this member keeps tensors of the slot's kind of device."""
        if slot.device == "cpu":
            return torch.device("cpu")
        for module in self._modules.values():
            for parameter in module.parameters():
                if parameter.device.type == slot.device:
                    return parameter.device
        usable = slot.device != "cuda" or torch.cuda.is_available()
        return torch.device(slot.device if usable else "cpu")

    def _check_names(self, tree: Mapping[str, Any]) -> None:
        theirs = tree.keys() - {VALUES, RNG, EXTRA, UNLISTED}
        if theirs != self._objects.keys():
            raise StateError(
                f"this member carries {sorted(self._objects)} and the others {sorted(theirs)}; "
                "pass the same names to join() on all of them"
            )


def difference(mine: Sequence[Description], theirs: Sequence[Description]) -> str | None:
    """One line that names the first parameter that differs; None if none does."""
    ours, others = ({name: spec for name, *spec in each} for each in (mine, theirs))
    for name in itertools.chain(ours, others):
        here, there = _spoken(ours.get(name)), _spoken(others.get(name))
        if here != there:
            return f"parameter '{name}' is {here} here and {there} on the others"
    for number, (name, other) in enumerate(zip(ours, others, strict=True), start=1):
        if name != other:
            return f"parameter {number} is '{name}' here and '{other}' on the others"
    return None


def _spoken(spec: Sequence[Any] | None) -> str:
    return "missing" if spec is None else f"{spec[1]}{list(spec[0])}"


def _shape_and_dtype(parameter: Tensor) -> tuple[tuple[int, ...], str]:
    if is_lazy(parameter):
        return (), "uninitialised"
    return tuple(parameter.shape), str(parameter.dtype).removeprefix("torch.")


def _spare_room(spare: Prepared | None, own: set[int]) -> dict[tuple[Any, ...], list[Tensor]]:
    pool: dict[tuple[Any, ...], list[Tensor]] = {}
    if spare is not None:
        for slot, tensor in zip(spare.layout.slots, spare.tensors, strict=True):
            if id(tensor) not in own:
                pool.setdefault(slot[:4], []).append(tensor)
    return pool


def _claim(taken: dict[int, Home], tensor: Tensor, home: Home) -> None:
    first = taken.setdefault(id(tensor), home)
    if first != home:
        raise StateError(
            f"'{first[1]}' and '{home[1]}' of {home[0]} are one tensor here and two on the others; "
            "build the same model on all members"
        )


def _turn(held: object) -> int:
    """Modules before optimizers before whatever may look at either."""
    if isinstance(held, nn.Module):
        return 0
    return 1 if isinstance(held, torch.optim.Optimizer) else 2
