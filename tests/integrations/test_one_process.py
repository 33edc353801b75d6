"""What a framework with its own launcher sees of the environment of a member."""

from midflight.integrations.one_process import own_device, set_apart
from midflight.protocol.environment import TorchrunEnv, WorkerEnv

TORCHRUN = TorchrunEnv(
    rank=2, world_size=3, local_rank=1, local_world_size=2, group_rank=0, group_world_size=1,
    master_addr="localhost", master_port=1, restart_count=0, max_restarts=0, run_id="run",
)  # fmt: skip
WORKER = WorkerEnv(
    run="run", member="m2", host="here", slot=1, address="localhost", coordinator="localhost:1",
    token_file="token", elastic_timeout=600.0, grace=30.0, ledger="", rank=2, size=3,
)  # fmt: skip


def test_nothing_is_left_that_torchrun_sets_and_the_member_still_knows_its_place() -> None:
    environ = {**WORKER.to_env(), **TORCHRUN.to_env(), "HOME": "/root"}
    for _ in range(2):  # once for each framework that is imported
        set_apart(environ)
        assert not environ.keys() & TORCHRUN.to_env().keys()
        assert WorkerEnv.from_env(environ) == WORKER
        assert environ["HOME"] == "/root"


def test_a_process_that_is_not_a_member_keeps_its_environment() -> None:
    environ = TORCHRUN.to_env()
    set_apart(environ)
    assert environ == TORCHRUN.to_env()


def test_each_slot_has_a_gpu_of_those_that_can_be_seen() -> None:
    assert [own_device("", slot, 2) for slot in range(3)] == ["0", "1", "0"]
    assert [own_device("5,GPU-a", slot, 2) for slot in range(2)] == ["5", "GPU-a"]
