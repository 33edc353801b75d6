"""A job of one process, without an agent: what it does, and refuses, when its world is broken."""

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.distributed as dist

import midflight as mf
from midflight import leaving, terminal
from midflight.errors import TorchUnsupported
from midflight.protocol.environment import WorkerEnv
from midflight.protocol.messages import MemberFailed
from midflight.runtime import torch_private
from midflight.runtime.data.plan import Seat
from midflight.runtime.group import reduction
from midflight.runtime.group.process_group import Group
from midflight.runtime.group.public_group import cuttable
from midflight.runtime.membership.member import Dismissed, Order
from tests.runtime.keys import world

MODEL = torch.nn.Linear(2, 1)


def lose_a_member(job: mf.Job) -> None:
    with pytest.raises(mf.WorldChanged), job.guard():
        raise RuntimeError("gloo: connection closed by peer")


def test_no_optimizer_steps_in_a_step_that_is_broken() -> None:
    optimizer = torch.optim.SGD(MODEL.parameters(), lr=1.0)
    with mf.join(model=MODEL, optimizer=optimizer) as job:
        job.check()
        MODEL(torch.ones(1, 2)).sum().backward()
        lose_a_member(job)
        with pytest.raises(mf.WorldChanged, match="repeat the step"):
            optimizer.step()
        job.check()
        assert job.step_number == 0
        optimizer.step()
        job.check()
        assert job.step_number == 1
        lose_a_member(job)
    optimizer.step()  # is the script's own business again


def test_a_step_that_broke_between_its_halves_did_not_happen() -> None:
    optimizer = torch.optim.SGD(MODEL.parameters(), lr=1.0)
    with mf.join(model=MODEL, optimizer=optimizer) as job:
        batch = next(job.batches([torch.ones(2)] * 4, global_batch_size=2, epochs=1))
        assert job.backward(MODEL(batch.data).sum())
        lose_a_member(job)
        assert not job.apply()
        assert job.step_number == 0


def test_a_step_is_counted_once_by_step_and_check() -> None:
    optimizer = torch.optim.SGD(MODEL.parameters(), lr=1.0)
    with mf.join(model=MODEL, optimizer=optimizer) as job:
        job.check()
        for number in (1, 2):
            assert job.step(MODEL(torch.ones(1, 2)).sum())
            job.check()
            assert job.step_number == number


def test_a_guard_waits_for_a_fake_device_before_it_lets_results_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def cut_meanwhile(*_: object) -> None:
        raise mf.WorldChanged("the group was cut")

    with mf.join(model=MODEL) as job:
        job.check()
        monkeypatch.setattr(reduction, "wait_for_device", cut_meanwhile)
        with pytest.raises(mf.WorldChanged), job.guard():
            pass
        job.check()
        assert job.step_number == 0


def test_a_loop_may_look_at_all_micro_batches_of_a_step_before_it_uses_the_first() -> None:
    model = torch.nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    start = model.weight.item()
    with mf.join(model=model, optimizer=optimizer) as job:
        data = [torch.tensor([float(n)]) for n in range(6)]
        batches = job.batches(data, 3, epochs=1, plan={"micro_batch_size": 2, "shuffle": False})
        for _ in range(2):
            first, last = next(batches), next(batches)
            assert job.begin(first) and not job.step(model(first.data).mean())
            assert job.begin(last) and job.step(model(last.data).mean())
    assert model.weight.item() == pytest.approx(start - 1 - 4)  # the means of 0, 1, 2 and 3, 4, 5


def test_a_job_that_begins_with_a_scripts_own_checkpoint_gets_the_rest_of_the_data() -> None:
    job = mf.join(ddp=False)
    job.begin_at(step=3, epoch=1, samples=2)
    with job:
        batches = job.batches(torch.arange(4), 2, epochs=2, plan={"shuffle": False})
        batch = next(batches)
        assert (batch.step, batch.epoch, batch.indices) == (3, 1, (2, 3))
        assert job.step(torch.zeros((), requires_grad=True))
        assert next(batches, None) is None


def test_a_world_that_is_cut_ends_the_step_between_two_micro_batches() -> None:
    with mf.join(ddp=False) as job:
        batches = job.batches(torch.arange(8), 8, epochs=1, plan={"micro_batch_size": 2})
        first = next(batches)
        session = job._session
        assert session.begin(first.issued)
        session.group.cut()
        assert not session.begin(first.issued)


class FakeMembership:
    """A coordinator that lets every member go which says that it has finished."""

    def say_settled(self, generation: int) -> None:
        pass

    def __init__(self) -> None:
        self.due = False
        self.finished = 0
        self.said: list[object] = []
        self.link = self

    def finish(self) -> None:
        self.finished += 1

    async def next_order(self, step: int, *, idle: bool = False) -> Order:
        return Dismissed("training is over", failed=False)

    def send(self, message: object) -> bool:
        self.said.append(message)
        return True

    def close(self) -> None: ...


def ended_with(error: BaseException | None, *, dismissed: bool = False) -> FakeMembership:
    membership = FakeMembership()
    job = mf.join(ddp=False)
    with contextlib.suppress(SystemExit, ValueError), job:
        job._session.driver.membership = membership  # type: ignore[assignment]
        if dismissed:
            membership.due = True
            job._session.boundary()
        if error is not None:
            raise error
    return membership


@pytest.mark.parametrize("error", [None, SystemExit(), SystemExit(0)])
def test_a_script_that_exits_in_good_order_has_finished(error: BaseException | None) -> None:
    assert ended_with(error).finished == 1


@pytest.mark.parametrize("error", [SystemExit(3), SystemExit("no"), KeyboardInterrupt()])
def test_a_script_that_exits_otherwise_has_not(error: BaseException) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        assert not ended_with(error).finished


def test_a_member_that_is_dismissed_does_not_say_that_it_has_finished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leaving, "dismiss", lambda: None)  # it would end the tests' process
    assert not ended_with(None, dismissed=True).finished


def told_by_batch_norm(count: int, size: int, micro_batch_size: int | None = None) -> str:
    """What a member says whose script fails because it was handed a single sample."""
    membership = FakeMembership()
    job = mf.join(ddp=False)
    plan = {"micro_batch_size": micro_batch_size}
    with pytest.raises(ValueError, match="more than 1 value"), job:
        job._session.schedule.replace(Seat(0, size - 1, size))
        for batch in job.batches([torch.ones(2)] * count, count, epochs=1, plan=plan):
            job._session.driver.membership = membership  # type: ignore[assignment]
            torch.nn.BatchNorm1d(2)(batch.data)
    (said,) = membership.said
    assert isinstance(said, MemberFailed)
    return said.error.splitlines()[-1]


def test_a_script_that_fails_because_a_share_is_one_sample_is_told_why_and_what_to_do() -> None:
    last = told_by_batch_norm(4, size=3)
    assert last.startswith("midflight: a batch of 4 samples was shared out among 3 members")
    assert "'drop_last': True" in last and "global_batch_size=6" in last and "--max-np 2" in last
    assert "micro_batch_size" in told_by_batch_norm(3, size=1, micro_batch_size=1)
    assert "--max-np" not in told_by_batch_norm(1, size=1)


class FakeGroup(Group):
    """Of two members, of which the other one is always there: collectives are gloo's, of one."""

    def __init__(self, *, seen: bool = True) -> None:
        """`seen`: whether collectives on the script's group are, as on all but NCCL's."""
        super().__init__(world(2), "m0", "gloo")
        store = dist.HashStore()
        gloo = torch_private.gloo_backend(store, 0, 1, "127.0.0.1", 30.0)
        self.pg = dist.ProcessGroup(store, 0, 1)
        torch_private.assemble(self.pg, "fake", {"cpu": ("gloo", gloo)}, "gloo")
        self.public = cuttable(self.pg, gloo, self.waits) if seen else self.pg
        self.met: list[list[int]] = []

    def gather(self, numbers: list[int]) -> list[list[int]]:
        self.met.append(numbers)
        return [numbers, numbers]


def test_members_that_average_nothing_in_a_step_meet_at_its_end() -> None:
    """Else their steps drift apart, and a record of one member says nothing about the others."""
    optimizer = torch.optim.SGD(MODEL.parameters(), lr=1.0)
    with mf.join(model=MODEL, optimizer=optimizer, ddp=False) as job:
        group = job._session.driver.group = FakeGroup()
        batches = job.batches([torch.ones(2)] * 6, global_batch_size=2, epochs=1)
        job.step(MODEL(next(batches).data).sum())
        assert group.met == [[0]]
        batch = next(batches)
        job.all_reduce(torch.ones(1))  # the script's own collective keeps them together
        job.step(MODEL(batch.data).sum())
        assert group.met == [[0]]
        job.step(MODEL(next(batches).data).sum())
        assert group.met == [[0], [2]]


COLLECTIVES: dict[str, Callable[[Any], Any]] = {
    "all-reduce": lambda group: group.allreduce([torch.ones(1)]),
    "barrier": lambda group: group.barrier(),
    "broadcast": lambda group: group.broadcast([torch.ones(1)]),
}


@pytest.mark.parametrize("collective", [None, *COLLECTIVES])
@pytest.mark.parametrize("hand_written", [True, False])
def test_a_collective_of_all_members_on_the_process_group_keeps_them_together(
    collective: str | None, hand_written: bool
) -> None:
    """A broadcast does not: whoever gives something away goes on."""
    optimizer = torch.optim.SGD(MODEL.parameters(), lr=1.0)
    with mf.join(model=MODEL, optimizer=optimizer, ddp=False) as job:
        fake = job._session.driver.group = FakeGroup()
        batches = job.batches([torch.ones(2)] * 4, global_batch_size=2, epochs=1)
        job.check()
        for step in range(2):
            if not hand_written:
                next(batches)
            with job.guard():
                group = job.process_group
                if collective is not None:
                    COLLECTIVES[collective](group).wait()
            if hand_written:
                job.check()
            else:
                job.step(MODEL(torch.ones(2)).sum())
            assert job.step_number == step + 1
        assert fake.met == ([] if collective in ("all-reduce", "barrier") else [[0], [1]])


@pytest.mark.parametrize("asks", [True, False])
def test_where_its_collectives_cannot_be_seen_a_script_that_asks_for_the_group_is_trusted(
    asks: bool,
) -> None:
    with mf.join(model=MODEL, ddp=False) as job:
        fake = job._session.driver.group = FakeGroup(seen=False)
        job.check()
        if asks:
            assert job.process_group is fake.pg
        job.check()
        assert fake.met == ([] if asks else [[0]])


class ListeningMembership(FakeMembership):
    """A coordinator that is told why worlds broke."""

    def __init__(self) -> None:
        super().__init__()
        self.reasons: list[str] = []

    def now(self) -> float:
        return 0.0

    def broke(self, group: Group, step: int, reason: str) -> None:
        self.reasons.append(reason)


DUPLICATE = (
    "NCCL error in: ProcessGroupNCCL.cpp:1691, invalid usage, NCCL version 2.19.3\n"
    "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\n"
    "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 4000"
)


def test_members_that_nccl_refuses_because_they_share_a_gpu_are_told_what_to_do(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """It happens again in each world, until the job gives up."""
    with mf.join(model=MODEL) as job:
        membership = job._session.driver.membership = ListeningMembership()  # type: ignore[assignment]
        for text in (DUPLICATE, f"a collective failed: {DUPLICATE}", "gloo: closed by peer"):
            job._session.driver.broke(mf.WorldChanged(text))
    first, second, other = membership.reasons
    for reason in (first, second):
        assert reason.startswith("two members use the same GPU")
        assert "backend='gloo'" in reason and "Duplicate GPU detected : rank 1" in reason
    assert other == "gloo: closed by peer"
    terminal.drain()
    assert capfd.readouterr().err.count("backend='gloo'") == 1, "once is enough"


class FakeDevice:
    """Is still at what was ordered when it is asked, and something happens meanwhile."""

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.meanwhile = meanwhile
        self.asked = 0

    def record(self, stream: object) -> None: ...

    def query(self) -> bool:
        self.asked += 1
        self.meanwhile()
        return True


class NcclGroup(FakeGroup):
    """Its collectives cannot be seen, and end at a cut like whole ones."""

    def __init__(self) -> None:
        super().__init__(seen=False)
        self.backend = "nccl"


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    device = FakeDevice()
    monkeypatch.setattr(torch.cuda, "Event", lambda: device)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    return device


def reduce_gradients(model: torch.nn.Module, group: Any) -> None:
    """A script's own DDP, as far as it matters here."""
    model.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    for parameter in model.parameters():
        group.allreduce([parameter.grad]).wait()


def test_a_device_that_is_cut_short_in_a_collective_outside_a_guard_moves_no_weight(
    device: FakeDevice,
) -> None:
    optimizer = torch.optim.SGD(MODEL.parameters(), lr=1.0)
    before = MODEL.weight.detach().clone()
    with mf.join(model=MODEL, optimizer=optimizer, ddp=False) as job:
        group = job._session.driver.group = NcclGroup()
        job.check()
        reduce_gradients(MODEL, job.process_group)
        device.meanwhile = group.cut
        with pytest.raises(mf.WorldChanged, match="repeat the step"):
            optimizer.step()
        assert torch.equal(MODEL.weight, before)
        job.check()
        assert job.step_number == 0


def test_nor_does_its_step_count_where_no_optimizer_is_there_to_look(device: FakeDevice) -> None:
    with mf.join(model=MODEL, ddp=False) as job:
        group = job._session.driver.group = NcclGroup()
        job.check()
        reduce_gradients(MODEL, job.process_group)
        device.meanwhile = group.cut
        job.check()
        assert job.step_number == 0


def test_nor_where_it_happens_between_the_halves_of_a_step(device: FakeDevice) -> None:
    optimizer = torch.optim.SGD(MODEL.parameters(), lr=1.0)
    with mf.join(model=MODEL, optimizer=optimizer, ddp=False) as job:
        group = job._session.driver.group = NcclGroup()
        batch = next(job.batches([torch.ones(2)] * 4, global_batch_size=2, epochs=1))
        assert job.backward(MODEL(batch.data).sum())
        reduce_gradients(MODEL, job.process_group)
        device.meanwhile = group.cut
        assert not job.apply()
        assert job.step_number == 0


@pytest.mark.parametrize("by", ["an optimizer", "a guard"])
def test_a_cut_after_the_results_were_found_whole_leaves_the_step_done(
    device: FakeDevice, by: str
) -> None:
    """The weights have moved: a repeated step would move them twice."""
    optimizer = torch.optim.SGD(MODEL.parameters(), lr=1.0)
    with mf.join(model=MODEL, optimizer=optimizer, ddp=False) as job:
        group = job._session.driver.group = NcclGroup()
        job.check()
        if by == "a guard":
            with job.guard():
                reduce_gradients(MODEL, job.process_group)
        else:
            reduce_gradients(MODEL, job.process_group)
            optimizer.step()
        device.meanwhile = group.cut
        group.cut()
        job.check()
        assert job.step_number == 1


def test_a_loss_that_a_script_has_caught_outside_a_guard_does_not_count_as_a_step() -> None:
    optimizer = torch.optim.SGD(MODEL.parameters(), lr=1.0)
    with mf.join(model=MODEL, optimizer=optimizer, ddp=False) as job:
        group = job._session.driver.group = FakeGroup()
        job.check()
        group.cut()
        with pytest.raises(mf.WorldChanged):
            reduce_gradients(MODEL, job.process_group)
        with pytest.raises(mf.WorldChanged, match="repeat the step"):
            optimizer.step()
        job.check()
        assert job.step_number == 0


def test_no_device_is_asked_with_gloo_nor_without_collectives_of_the_scripts_own(
    device: FakeDevice,
) -> None:
    optimizer = torch.optim.SGD(MODEL.parameters(), lr=1.0)
    with mf.join(model=MODEL, optimizer=optimizer, ddp=False) as job:
        for group, asks in ((FakeGroup(), True), (NcclGroup(), False)):
            job._session.driver.group = group
            job.check()
            if asks:
                reduce_gradients(MODEL, job.process_group)
            optimizer.step()
            job.check()
            job._session.own_collectives = False
    assert device.asked == 0


@pytest.fixture
def old_torch_in_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    env = WorkerEnv("run", "m0", "h", 0, "127.0.0.1", "127.0.0.1:1", "", 1.0, 1.0, "")
    for name, value in env.to_env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch_private, "PYTHON_WORKS", False)


@pytest.mark.usefixtures("old_torch_in_a_job")
@pytest.mark.parametrize("option", ["find_unused_parameters", "static_graph"])
def test_what_would_wait_where_no_cut_ends_it_is_refused_at_the_start(option: str) -> None:
    with pytest.raises(TorchUnsupported, match=rf"{option}.*2\.7 or later with gloo"):
        mf.join(model=MODEL, ddp={option: True})
    mf.join(model=MODEL, ddp={option: False})
    mf.join(model=MODEL, ddp={option: True}, backend="nccl")  # an abort ends its waits


@pytest.mark.usefixtures("old_torch_in_a_job")
def test_so_is_the_process_group_with_which_a_script_would_build_such_a_thing() -> None:
    job = mf.join(model=MODEL, ddp=False)
    job._session.awaited = False
    with pytest.raises(TorchUnsupported, match=r"job\.process_group.*job\.all_reduce"):
        job.process_group  # noqa: B018


def test_a_preparation_waits_for_the_next_step_boundary_until_it_is_abandoned() -> None:
    job, coming = mf.join(model=MODEL), Group(world(2), "m0", "gloo")
    job._session.ask_for_layout()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(job._session.layout, coming)
        coming.cut()
        with pytest.raises(mf.WorldChanged, match="step boundary"):
            waiting.result(30.0)


def test_a_member_that_is_lost_in_that_meeting_has_done_the_step_as_the_others_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The script has gone through it already, and needed nobody for it."""
    with mf.join(model=MODEL, ddp=False) as job:
        fake = job._session.driver.group = FakeGroup()
        job.check()
        monkeypatch.setattr(fake, "gather", lambda _: fake.waits.end() or fake.waits.check())
        job.check()
        assert job.step_number == 1
