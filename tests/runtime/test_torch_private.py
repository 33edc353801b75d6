"""Each private interface of torch exists on the installed version, and does what we need of it.

`make test-torch VERSION=...` runs these on another version.
"""

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import midflight
from midflight import errors
from midflight.runtime import torch_private
from midflight.runtime.group.process_group import Group
from midflight.runtime.membership.standing import Standing
from tests.runtime.handing import together
from tests.runtime.worlds import connected

SOURCE = Path(midflight.__file__).parent
NAMES = [item.name for item in torch_private.INTERFACES]
GROUP = "distributed.ProcessGroup"
GLOO = "distributed.ProcessGroupGloo"
DDP = "nn.parallel.DistributedDataParallel"
MODULE = "nn.Module"
OPTIMIZER = "optim.Optimizer"
MODULE_FILE = SOURCE / "runtime" / "torch_private.py"
FOLDERS = ("runtime", "compat")  # the others never import torch
OF_TENSORFLOW = {"tensorflow", "keras_versions.py"}
NAMED = {part.removesuffix("()") for n in NAMES for part in n.split(".") if part.startswith("_")}
ONLY_IN_TYPES = {"_C", "_distributed_c10d"}  # for mypy: what runs takes them from torch.distributed
PROVEN: set[str] = set()

Test = Callable[..., None]


def proves(*names: str) -> Callable[[Test], Test]:
    """The test is about these interfaces."""
    PROVEN.update(names)
    return lambda test: test


@pytest.fixture
def pair() -> Iterator[list[Group]]:
    with connected(2) as groups:
        yield groups


# --- all of them --------------------------------------------------------------------------------


def test_this_torch_has_every_interface() -> None:
    assert torch_private.missing() == []
    torch_private.check()


def test_every_interface_has_a_test_and_a_reason() -> None:
    nccl = {name for name in NAMES if "NCCL" in name}  # proven by tests/e2e/test_gpu.py
    assert set(NAMES) - nccl == PROVEN
    assert all(item.why for item in torch_private.INTERFACES)


@pytest.mark.parametrize("start", [midflight.join, Standing], ids=["join", "drop-in"])
def test_a_torch_that_lacks_one_is_named_at_the_start(
    start: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(torch, "_foreach_copy_")
    with pytest.raises(errors.TorchUnsupported) as raised:
        start()
    told = str(raised.value)
    assert f"torch {torch.__version__} lacks" in told
    assert "torch._foreach_copy_ (one call for many small copies)" in told
    assert "Install a torch" in told


@pytest.mark.parametrize(
    "name",
    [
        "_gone",
        "nn.Module._gone",
        "nn.Module()._gone",
        "nn.Module().state_dict()._gone",
        "optim.Optimizer._gone",
    ],
)
def test_an_interface_is_missed_wherever_it_was(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = torch_private.Interface(name, "the reason")
    monkeypatch.setattr(torch_private, "INTERFACES", (gone,))
    assert torch_private.missing() == [gone]


def test_no_other_module_uses_a_private_name_of_torch() -> None:
    trees = {path: _tree(path) for folder in FOLDERS for path in (SOURCE / folder).rglob("*.py")}
    del trees[MODULE_FILE]
    ours = _Ours.of(*trees.values())
    found = [
        f"{path.relative_to(SOURCE)}:{line} {name}"
        for path, tree in trees.items()
        if not OF_TENSORFLOW & set(path.parts)
        for line, name in _uses(tree, ours.but(NAMED, kept=_Ours.of(tree)))
    ]
    assert not found, f"these belong into runtime/torch_private.py: {found}"


def test_the_module_of_private_names_lists_each_that_it_uses() -> None:
    tree = _tree(MODULE_FILE)
    unlisted = {name for _, name in _uses(tree, _Ours.of(tree))} - NAMED - ONLY_IN_TYPES
    assert not unlisted, f"these belong into INTERFACES: {unlisted}"


@pytest.mark.parametrize(
    "use",
    [
        "module._buffers",
        "model.inner._modules.items()",
        "super()._apply(move)",
        "self._optimizer_step_pre_hooks",
        "self._version",
        "getattr(module, '_parameters')",
        "hasattr(parameter, '_grad')",
        "getattr(optimizer, f'_optimizer_step_{when}_hooks', ())",
        "getattr(module, '_forward_' + kind)",
        "setattr(module, '_%s_hooks' % kind, {})",
        "hasattr(module, '_{}_hooks'.format(kind))",
        "torch._dynamo.reset()",
        "import torch._dynamo",
        "from torch._C import _distributed_c10d",
        "from torch.nn.modules.module import _addindent",
    ],
)
def test_a_new_use_of_a_private_name_is_seen(use: str) -> None:
    assert list(_uses(ast.parse(use), OWN))


@pytest.mark.parametrize(
    "use", ["self._own", "cls._make()", "state._make()", "os._exit(0)", "hasattr(pair, '_fields')"]
)
def test_private_names_of_ours_and_of_python_are_not_taken_for_those_of_torch(use: str) -> None:
    assert not list(_uses(ast.parse(use), OWN))


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class _Ours:
    """Private names that modules of ours define: what `self` has, and what others may call."""

    of_self: frozenset[str]
    functions: frozenset[str]

    @classmethod
    def of(cls, *trees: ast.Module) -> "_Ours":
        nodes = [node for tree in trees for node in ast.walk(tree)]
        functions = {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
        names = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        names |= {n.attr for n in nodes if _is_own(n) and isinstance(n.ctx, ast.Store)}
        return cls(frozenset(names | functions), frozenset(functions))

    def but(self, names: set[str], kept: "_Ours") -> "_Ours":
        return _Ours((self.of_self - names) | kept.of_self, self.functions - names)


OWN = _Ours(frozenset({"_own", "_make", "_buffers"}), frozenset({"_make"}))


def _is_own(node: ast.AST) -> TypeGuard[ast.Attribute]:
    if not isinstance(node, ast.Attribute):
        return False
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def _uses(tree: ast.Module, ours: _Ours) -> Iterator[tuple[int, str]]:
    """Private names of others, but for those of Python's own modules."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found = {part for alias in names for part in alias.name.split(".")}
            case ast.ImportFrom(module=str(module), names=names) if module.startswith("torch"):
                found = {*module.split("."), *(alias.name for alias in names)}
            case ast.Attribute(value=ast.Name(id=of)) if of in sys.stdlib_module_names:
                continue
            case ast.Attribute(attr=name):
                found = {name} - (ours.of_self if _is_own(node) else ours.functions)
            case ast.Call(
                func=ast.Name(id="getattr" | "hasattr" | "setattr" | "delattr"),
                args=[_, ast.Constant(value=str(name)), *_],
            ):
                found = {name} - ours.of_self
            case ast.Call(
                func=ast.Name(id="getattr" | "hasattr" | "setattr" | "delattr"),
                args=[_, ast.JoinedStr() | ast.BinOp() | ast.Call() as composed, *_],
            ):
                found = {str(n.value) for n in ast.walk(composed) if isinstance(n, ast.Constant)}
            case _:
                continue
        yield from ((node.lineno, name) for name in sorted(found) if _is_private(name))


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_fields"


# --- process groups -----------------------------------------------------------------------------


@proves(
    f"{GROUP}._register_backend",
    f"{GROUP}._set_default_backend",
    f"{GROUP}._set_group_name",
    f"{GLOO}._Options._devices",
    f"{GLOO}._Options._threads",
    f"{GLOO}.create_device",
)
def test_a_group_is_assembled_without_the_default_group(pair: list[Group]) -> None:
    tensors = [torch.ones(2), torch.ones(2)]
    together(
        *(
            lambda group=group, tensor=tensor: group.pg.allreduce([tensor]).wait()
            for group, tensor in zip(pair, tensors, strict=True)
        )
    )
    assert [tensor.tolist() for tensor in tensors] == [[2.0, 2.0]] * 2
    assert not dist.is_initialized()
    assert pair[0].pg.group_name == "midflight-3"


@proves(f"{GROUP}._get_backend", f"{GROUP}._device_types")
def test_a_group_tells_its_devices_and_their_backends(pair: list[Group]) -> None:
    assert torch_private.device_types(pair[0].pg) == ["cpu"]
    assert torch_private.backend_name(pair[0].pg, "cpu") == "gloo"
    assert torch_private.backend_name(pair[0].pg, "cuda") is None
    assert torch_private.backend_name(pair[0].control, "cpu") == "gloo"


@proves(f"{GROUP}._allgather_base", f"{GROUP}._reduce_scatter_base")
def test_the_flat_gather_goes_through_the_operations_that_we_replace(pair: list[Group]) -> None:
    def gather(group: Group) -> list[float]:
        flat = torch.empty(2)
        group.public._allgather_base(flat, torch.tensor([float(group.rank)])).wait()
        return flat.tolist()

    gathered = together(*(lambda group=group: gather(group) for group in pair))
    assert gathered == [[0.0, 1.0]] * 2
    assert callable(pair[0].public._reduce_scatter_base)


@proves(f"{GLOO}._Options._timeout")
def test_connecting_to_a_member_that_does_not_come_has_a_deadline() -> None:
    with pytest.raises(RuntimeError, match=r"(?i)timed? ?out"):
        torch_private.gloo_backend(dist.HashStore(), 0, 2, "127.0.0.1", 0.2)


def test_a_transport_that_this_torch_lacks_is_refused_before_anything_is_trained() -> None:
    """Nobody who asks for TLS may end up without it, or search for the reason."""
    code = "from midflight.runtime import torch_private; torch_private.check()"
    wanted = {**os.environ, torch_private.TRANSPORT: "TCP_TLS"}  # torch reads it once in a process
    done = subprocess.run([sys.executable, "-c", code], env=wanted, capture_output=True, text=True)
    if done.returncode == 0:
        pytest.skip("gloo in this torch has TLS")
    assert "TorchUnsupported: GLOO_DEVICE_TRANSPORT=TCP_TLS, but gloo in torch" in done.stderr
    assert "built with USE_GLOO_WITH_OPENSSL" in done.stderr


@proves(f"{GLOO}._set_default_timeout")
def test_the_deadline_of_collectives_is_not_that_of_connecting() -> None:
    store = dist.HashStore()
    backends = together(
        *(
            lambda rank=rank: torch_private.gloo_backend(store, rank, 2, "127.0.0.1", 60.0)
            for rank in range(2)
        )
    )
    torch_private.set_timeout(backends[0], 0.2)
    with pytest.raises(RuntimeError, match=r"(?i)timed? ?out"):
        backends[0].allreduce([torch.ones(1)], dist.AllreduceOptions()).wait()


# --- DistributedDataParallel --------------------------------------------------------------------


@proves(
    f"{DDP}._pre_forward",
    f"{DDP}._post_forward",
    "distributed.Reducer._rebuild_buckets",
    "distributed.Reducer._get_zeros_like_grad_buckets",
)
def test_ddp_averages_the_gradients_of_a_module_that_is_called_by_itself(
    pair: list[Group],
) -> None:
    def train(group: Group) -> tuple[list[bool], list[Tensor]]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
        ddp = DistributedDataParallel(model, process_group=group.pg, **torch_private.QUIET_DDP)
        rebuilt = []
        for _ in range(3):
            rebuilt.append(torch_private.rebuild_buckets(ddp))
            given = torch.full((1, 2), float(group.rank + 1))
            (args, kwargs) = torch_private.before_forward(ddp, (given,), {})
            output = torch_private.after_forward(ddp, model(*args, **kwargs))
            model.zero_grad()
            output.sum().backward()
        buckets = [bucket.buffer() for bucket in torch_private.empty_buckets(ddp)]
        assert sum(bucket.numel() for bucket in buckets) == 9
        assert not any(bucket.any() for bucket in buckets)
        return rebuilt, [p.grad for p in model.parameters() if p.grad is not None]

    (rebuilt, first), (_, second) = together(*(lambda g=group: train(g) for group in pair))
    assert rebuilt == [False, True, False]
    assert all(map(torch.equal, first, second))
    assert first[-1].item() == 1.0


@proves("nn.parallel.distributed._find_tensors")
def test_all_tensors_of_an_output_are_found() -> None:
    one, two, three = (torch.zeros(1) for _ in range(3))
    found = torch_private.tensors_in({"a": one, "b": [two, (three, "no tensor")]})
    assert {id(tensor) for tensor in found} == {id(one), id(two), id(three)}


@proves("autograd.Variable._execution_engine.queue_callback")
def test_an_action_after_the_backward_pass_comes_when_all_gradients_are_there() -> None:
    weights = torch.ones(2, requires_grad=True)
    other = torch.ones(2, requires_grad=True)
    seen: list[bool] = []

    def look() -> None:
        seen.append(weights.grad is not None and other.grad is not None)

    output = weights * 2
    output.register_hook(lambda _: torch_private.after_backward(look))
    (output * other).sum().backward()
    assert seen == [True]


@proves("autograd.Variable._execution_engine.queue_callback")
def test_an_error_of_such_an_action_comes_out_of_the_backward_pass() -> None:
    weights = torch.ones(2, requires_grad=True)

    def fail() -> None:
        raise errors.WorldChanged("lost")

    output = weights * 2
    output.register_hook(lambda _: torch_private.after_backward(fail))
    with pytest.raises(errors.WorldChanged, match="lost"):
        output.sum().backward()


# --- tensors and modules ------------------------------------------------------------------------


@proves("_utils._flatten_dense_tensors", "_utils._unflatten_dense_tensors", "_foreach_copy_")
def test_many_tensors_go_through_one_and_back() -> None:
    tensors = [torch.arange(4.0).view(2, 2), torch.tensor(7.0)]
    flat = torch_private.flatten(tensors)
    assert flat.tolist() == [0, 1, 2, 3, 7]
    targets = [torch.empty(2, 2), torch.empty(())]
    torch_private.copy_each(targets, torch_private.unflatten(flat, targets))
    assert all(map(torch.equal, targets, tensors))
    places = torch_private.unflatten(flat, targets)
    places[0].zero_()
    assert flat.tolist() == [0, 0, 0, 0, 7], "the parts are the flat tensor's own memory"


@proves("Tensor._version")
def test_a_change_in_place_counts() -> None:
    buffer = torch.zeros(2)
    (before,) = torch_private.versions([buffer])
    buffer.add_(1)
    assert torch_private.versions([buffer]) == [before + 1]


class _OwnLoading(nn.Linear):
    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """A way of its own."""


@proves(
    f"{MODULE}._load_from_state_dict",
    f"{MODULE}()._load_state_dict_pre_hooks",
    f"{MODULE}()._load_state_dict_post_hooks",
)
def test_modules_that_load_in_a_way_of_their_own_are_known() -> None:
    before, after = nn.Linear(1, 1), nn.Linear(1, 1)
    before.register_load_state_dict_pre_hook(lambda *_: None)
    after.register_load_state_dict_post_hook(lambda module, keys: None)
    assert torch_private.loads_plainly(nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1)))
    assert not torch_private.loads_plainly(nn.Sequential(before))
    assert not torch_private.loads_plainly(nn.Sequential(after))
    assert not torch_private.loads_plainly(nn.Sequential(_OwnLoading(1, 1)))


@proves(f"{MODULE}().state_dict()._metadata")
def test_a_state_dict_carries_the_versions_of_its_modules() -> None:
    module = nn.BatchNorm1d(1)
    state = module.state_dict()
    other = type(state)(state)
    torch_private.copy_metadata(other, state)
    assert module.load_state_dict(other)
    assert other._metadata[""]["version"] == 2


@proves(f"{OPTIMIZER}._optimizer_step_pre_hooks", f"{OPTIMIZER}._optimizer_step_post_hooks")
@pytest.mark.parametrize("when", ["pre", "post"])
def test_a_hook_on_an_optimizers_step_is_seen_beside_ours(when: str) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    optimizer.register_step_pre_hook(lambda *_: None)  # ours
    assert not torch_private.has_step_hooks(optimizer)
    register = {
        "pre": optimizer.register_step_pre_hook,
        "post": optimizer.register_step_post_hook,
    }
    hook = register[when](lambda *_: None)
    assert torch_private.has_step_hooks(optimizer)
    hook.remove()
    assert not torch_private.has_step_hooks(optimizer)


@proves("cuda._is_in_bad_fork")
def test_where_cuda_was_not_touched_a_fork_may_use_it() -> None:
    assert torch_private.cuda_is_lost() is False


@proves("nn.modules.batchnorm._BatchNorm")
def test_every_batch_norm_has_the_same_base() -> None:
    assert issubclass(nn.BatchNorm1d, torch_private.BatchNormBase)
    assert issubclass(nn.SyncBatchNorm, torch_private.BatchNormBase)
