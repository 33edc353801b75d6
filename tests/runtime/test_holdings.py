import random
from typing import Any

import numpy
import pytest
import torch
from torch import nn

from midflight.errors import StateError
from midflight.runtime.state.holdings import Holdings, difference
from midflight.runtime.state.layout import Snapshot
from tests.runtime.handing import gloo, hand_over, refused, same_bits


@pytest.fixture(scope="module")
def groups() -> list[Any]:
    return gloo()


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    return model


class Buffered(nn.Module):
    """Buffers of the kinds that give trouble."""

    def __init__(self, cached: int = 2) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("mask", torch.rand(1, 4).expand(5, 4))
        self.register_buffer("cache", torch.rand(cached), persistent=False)
        self.register_buffer("absent", None)
        self.extra = 0

    def get_extra_state(self) -> Any:
        return {"extra": self.extra}

    def set_extra_state(self, state: Any) -> None:
        self.extra = state["extra"]


class Scaled(nn.Module):
    """Lists another tensor than the one it computes with."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(3))
        self.register_state_dict_post_hook(self._double)
        self.register_load_state_dict_pre_hook(self._halve)

    @staticmethod
    def _double(module: nn.Module, state: Any, prefix: str, metadata: Any) -> None:
        state[prefix + "weight"] = state[prefix + "weight"] * 2

    @staticmethod
    def _halve(module: nn.Module, state: Any, prefix: str, *rest: Any) -> None:
        state[prefix + "weight"] = state[prefix + "weight"] / 2


class Average:
    """Somebody's own EMA: no module, but it can say and take its state."""

    def __init__(self, model: nn.Module) -> None:
        self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}
        self.updates = 0

    def state_dict(self) -> dict[str, Any]:
        return {"shadow": self.shadow, "updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.shadow, self.updates = state["shadow"], state["updates"]


def addresses(module: nn.Module) -> list[int]:
    return [p.data_ptr() for p in module.parameters()]


def test_a_module_receives_in_its_own_memory_and_keeps_its_parameters(groups: list[Any]) -> None:
    giver, taker = nn.Linear(800, 400), nn.Linear(800, 400)
    parameters, before = list(taker.parameters()), addresses(taker)
    received, _ = hand_over(groups, Holdings({"m": giver}), Holdings({"m": taker}))
    assert [id(t) for t in received.tensors[:2]] == [id(p) for p in parameters]
    assert addresses(taker) == before
    assert torch.equal(taker.weight, giver.weight)
    assert taker.weight.requires_grad


def test_a_survivor_can_keep_its_weights_until_all_of_the_state_is_there() -> None:
    giver, taker = nn.Linear(3, 2), nn.Linear(3, 2)
    old = taker.weight.detach().clone()
    snapshot = Holdings({"m": giver}).capture({})
    holdings = Holdings({"m": taker})
    room = holdings.prepare(snapshot.layout, in_place=False)
    for place, tensor in zip(room.tensors, snapshot.tensors, strict=True):
        place.copy_(tensor.detach())
    assert torch.equal(taker.weight, old)
    holdings.restore(Snapshot(snapshot.blob, room.tensors, snapshot.layout))
    assert torch.equal(taker.weight, giver.weight)


def test_tied_weights_travel_once_and_stay_tied(groups: list[Any]) -> None:
    giver, taker = tied(), tied()
    received, _ = hand_over(groups, Holdings({"m": giver}), Holdings({"m": taker}))
    assert sum(slot.home is not None for slot in received.layout.slots) == 3
    assert taker[1].weight is taker[0].weight
    assert same_bits(dict(taker.state_dict()), dict(giver.state_dict()))


def test_weights_that_are_tied_only_here_are_an_error() -> None:
    layout = Holdings({"m": nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))}).capture({}).layout
    assert "'0.weight' and '1.weight' of m are one tensor here and two on the others" in refused(
        lambda: Holdings({"m": tied()}).prepare(layout)
    )


def test_buffers_of_all_kinds_arrive(groups: list[Any]) -> None:
    giver, taker = Buffered(cached=7), Buffered()
    giver.norm(torch.randn(8, 3))
    giver.extra = 5
    hand_over(groups, Holdings({"m": giver}), Holdings({"m": taker}))
    assert taker.extra == 5
    assert int(taker.norm.num_batches_tracked) == 1
    assert same_bits(dict(taker.named_buffers()), dict(giver.named_buffers()))
    assert "cache" not in taker.state_dict()


def test_what_a_module_s_hooks_make_of_its_tensors_is_undone_by_its_hooks(
    groups: list[Any],
) -> None:
    giver, taker = Scaled(), Scaled()
    hand_over(groups, Holdings({"m": giver}), Holdings({"m": taker}))
    assert torch.equal(taker.weight, giver.weight)


def test_a_hook_is_called_though_every_tensor_is_in_its_place() -> None:
    holdings, called = Holdings({"m": (model := nn.Linear(1, 1))}), []
    model.register_load_state_dict_post_hook(lambda *_: called.append(1))
    holdings.restore(holdings.capture({}))
    assert called == [1]


def test_a_module_in_another_memory_format_takes_the_values(groups: list[Any]) -> None:
    giver = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    taker = nn.Conv2d(3, 4, 3)
    hand_over(groups, Holdings({"m": giver}), Holdings({"m": taker}))
    assert torch.equal(taker.weight, giver.weight)
    assert taker.weight.is_contiguous()


def test_an_optimizer_s_state_keeps_a_dtype_that_differs_from_the_parameter_s(
    groups: list[Any],
) -> None:
    sides = []
    for _ in range(2):
        model = nn.Linear(3, 2).bfloat16()
        sides.append((model, torch.optim.SGD(model.parameters(), momentum=0.9)))
    (model, giver), (_, taker) = sides
    exact = {"momentum_buffer": torch.rand(2, 3), "note": "kept", "several": [torch.rand(1), None]}
    giver.state[model.weight] = exact
    held = [Holdings({"model": model, "optimizer": optimizer}) for model, optimizer in sides]
    hand_over(groups, held[0], held[1])
    assert same_bits(taker.state_dict(), giver.state_dict())


def test_a_grad_scaler_and_somebody_s_own_average_arrive(groups: list[Any]) -> None:
    sides = []
    for scale in (4.0, 2.0):
        model = nn.Linear(3, 2)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=1)  # type: ignore[attr-defined]
        optimizer = torch.optim.SGD(model.parameters())
        sides.append({"model": model, "opt": optimizer, "scaler": scaler, "ema": Average(model)})
    giver, taker = sides
    for _ in range(2):
        giver["scaler"].scale(giver["model"](torch.ones(1, 3)).sum()).backward()
        giver["scaler"].step(giver["opt"])
        giver["scaler"].update()
    giver["ema"].updates = 2
    hand_over(groups, Holdings(giver), Holdings(taker))
    assert taker["scaler"].state_dict() == giver["scaler"].state_dict()
    assert taker["scaler"].get_scale() == 16.0
    assert taker["ema"].updates == 2
    assert same_bits(taker["ema"].shadow, giver["ema"].shadow)


def test_torch_s_averaged_model_arrives(groups: list[Any]) -> None:
    models = [nn.Linear(3, 2), nn.Linear(3, 2)]
    averages = [torch.optim.swa_utils.AveragedModel(model) for model in models]
    averages[0].update_parameters(models[0])
    hand_over(
        groups,
        *(Holdings({"m": m, "ema": a}) for m, a in zip(models, averages, strict=True)),
    )
    assert same_bits(dict(averages[1].state_dict()), dict(averages[0].state_dict()))


def test_values_arrive_in_the_dict_that_the_script_holds(groups: list[Any]) -> None:
    mine: dict[str, Any] = {"stale": 1}
    hand_over(groups, Holdings({}, {"best": 0.5, "seen": {1, 2}}), Holdings({}, mine))
    assert mine == {"best": 0.5, "seen": {1, 2}}


def draws() -> tuple[float, float, float]:
    return float(torch.rand(())), random.random(), float(numpy.random.rand())


def test_random_numbers_go_on_as_on_the_giver() -> None:
    holdings = Holdings({})
    draws()
    snapshot = holdings.capture({})
    expected = draws()
    holdings.restore(snapshot, rng=False)
    assert draws() != expected
    holdings.restore(snapshot)
    assert draws() == expected


def test_a_layout_stays_the_same_from_step_to_step() -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    holdings = Holdings({"model": model, "optimizer": optimizer}, {"loss": 0.0})
    prints = []
    for step in range(3):
        model(torch.randn(1, 3)).sum().backward()
        optimizer.step()
        holdings.values["loss"] = float(step)
        prints.append(holdings.capture({"step": step}).layout.fingerprint)
    assert len(set(prints)) == 1


def test_members_that_carry_different_names_are_told_so() -> None:
    snapshot = Holdings({"model": nn.Linear(1, 1)}).capture({})
    message = refused(lambda: Holdings({"net": nn.Linear(1, 1)}).restore(snapshot))
    assert message.startswith("this member carries ['net'] and the others ['model']")


def test_an_object_that_refuses_the_state_is_named() -> None:
    def holdings(groups: int) -> Holdings:
        params = [{"params": [nn.Parameter(torch.zeros(1))]} for _ in range(groups)]
        return Holdings({"opt": torch.optim.SGD(params)})

    message = refused(lambda: holdings(1).restore(holdings(2).capture({})))
    assert message.startswith("opt: SGD does not take the state of the other members")
    assert "parameter groups" in message


def test_an_object_without_a_state_is_refused_at_once() -> None:
    with pytest.raises(StateError, match=r"lr: a float without state_dict .* in job.state"):
        Holdings({"lr": 0.1})


def test_what_cannot_travel_is_named_by_where_the_script_put_it() -> None:
    assert refused(lambda: Holdings({}, {"log": open}).capture({})).startswith("job.state.log: ")


def test_models_that_match_have_one_fingerprint_and_no_difference() -> None:
    one, two = (Holdings({"m": nn.Linear(4, 10)}) for _ in range(2))
    assert one.fingerprint == two.fingerprint
    assert difference(one.describe(), two.describe()) is None


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        (nn.ModuleDict({"fc": nn.Linear(4, 12)}), "is float32[10, 4] here and float32[12, 4] on"),
        (nn.ModuleDict({"fc": nn.Linear(4, 10).half()}), "float32[10, 4] here and float16[10, 4]"),
        (nn.ModuleDict({"fc": nn.LazyLinear(10)}), "here and uninitialised[] on the others"),
        (nn.ModuleDict(), "parameter 'fc.weight' is float32[10, 4] here and missing on the others"),
    ],
)
def test_the_first_parameter_that_differs_is_named(theirs: nn.Module, message: str) -> None:
    mine = Holdings({"m": nn.ModuleDict({"fc": nn.Linear(4, 10)})})
    others = Holdings({"m": theirs})
    said = difference(mine.describe(), others.describe())
    assert said is not None
    assert said.startswith("parameter 'fc.weight' is ")
    assert message in said
    assert mine.fingerprint != others.fingerprint


def test_a_parameter_that_only_the_others_have_is_missing_here() -> None:
    said = difference([], [("w", (2,), "float32")])
    assert said == "parameter 'w' is missing here and float32[2] on the others"


def test_the_same_parameters_in_another_order_differ() -> None:
    a, b = ("a", (1,), "float32"), ("b", (1,), "float32")
    assert difference([a, b], [b, a]) == "parameter 1 is 'a' here and 'b' on the others"


def test_parameters_of_several_modules_are_told_apart() -> None:
    holdings = Holdings({"g": nn.Linear(1, 1, bias=False), "d": nn.Linear(1, 1, bias=False)})
    assert [name for name, *_ in holdings.describe()] == ["g.weight", "d.weight"]
