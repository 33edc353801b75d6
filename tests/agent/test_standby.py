"""A warm start must look like a cold one, only sooner. One agent serves most tests here.

Each program runs twice, cold (with an interpreter option that standbys do not know) and warm, and
what it printed, how it ended and what it saw are compared.
"""

import re
import signal
import sys
import time
from pathlib import Path

import pytest

from midflight.protocol.handover import Program, parse_command
from midflight.protocol.messages import MemberExited, MemberStarted, StopMember
from tests.agent.recording_coordinator import SOURCE, Stage, ended, scenario, send_signal, staged

pytestmark = pytest.mark.slow  # real processes or servers


COLD = ("-X", "utf8=0")

PROGRAMS = {
    "facts.py": """
import os, signal, sys, tempfile, threading, __main__
import beside
print(sys.argv, __name__, __file__, __package__, __spec__, sys.path[0], sys.flags.optimize)
print(sorted(name for name in vars(__main__) if name.startswith("__")), vars() is vars(__main__))
print(os.getcwd(), os.environ["GIVEN"], "MIDFLIGHT_MEMBER" in os.environ, type(__loader__))
print(os.getpid() == os.getsid(0) == os.getpgrp(), os.read(0, 1), threading.active_count())
print(sys.stdout.write_through, sys.stdout.encoding, sys.stderr.errors, beside.NAME)
print([signal.getsignal(number) for number in (2, 13, 15)], tempfile.gettempdir())
""",
    "ends.py": """
import atexit, sys, threading
atexit.register(print, "at exit", flush=True)
main = threading.main_thread()
threading.Thread(target=lambda: (main.join(), print("a thread"))).start()
print("no line end", end="")
sys.exit(17)
""",
    "environment.py": """
import os, midflight.runtime.group.process_group
print(sorted(os.environ))
print({name: value for name, value in os.environ.items() if "GLOO" in name})
""",
    "message.py": "import sys; sys.exit('a reason')",
    "nothing.py": "",
    "raises.py": """
def inner(x):
    return 1 / x
def outer():
    try:
        inner(0)
    except ZeroDivisionError as error:
        raise KeyError("wrapped") from error
outer()
""",
    "syntax.py": "print('never')\nthis is wrong\n",
    "interrupted.py": "import atexit; atexit.register(print, 'end'); raise KeyboardInterrupt",
    "hook.py": "import sys; sys.excepthook = lambda k, e, t: print(k, e, t.tb_lineno); 1 / 0",
    "killed.py": "import os; os.kill(os.getpid(), 9)",
    "spawned.py": """
import multiprocessing
def work(queue): queue.put(__name__)
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    process = context.Process(target=work, args=(queue,))
    process.start()
    print(queue.get())
    process.join()
""",
}


def write_programs(folder: Path) -> None:
    for place in (folder / "programs", folder / "package"):
        place.mkdir()
    (folder / "programs" / "beside.py").write_text("NAME = 'beside'")
    for name, text in PROGRAMS.items():
        (folder / "programs" / name).write_text(text)
    (folder / "package" / "__init__.py").write_text("")
    (folder / "package" / "__main__.py").write_text(
        "import sys; print(sys.argv, __name__, __spec__.name, sys.path[0], __file__, __package__)\n"
        "raise ValueError('in a module')\n"
    )


async def outcome(stage: Stage, member: str, *command: str) -> tuple[int, list[str], list[str]]:
    stage.start(member, sys.executable, *command, GIVEN="by the order")
    exited = await exit_of(stage, member)
    lines = stage.coordinator.lines
    return exited.code, lines(member, "stdout"), lines(member, "stderr")


async def start_of(stage: Stage, member: str) -> MemberStarted:
    return await stage.coordinator.first(MemberStarted, lambda m: m.member == member)


async def exit_of(stage: Stage, member: str) -> MemberExited:
    return await stage.coordinator.first(MemberExited, lambda m: m.member == member)


async def is_warm(stage: Stage, member: str) -> bool:
    return (await start_of(stage, member)).warm


@scenario
async def test_warm_programs_behave_as_cold_ones(tmp_path: Path) -> None:
    write_programs(tmp_path)
    commands: list[tuple[str, ...]] = [
        (f"programs/{name}", "an argument", "-x") for name in PROGRAMS
    ]
    commands += [("-m", "package", "more"), ("-m", "no_such_module"), ("-u", "programs/ends.py")]
    async with staged(tmp_path, "--warm", "2") as stage:
        for command in commands:
            warm = await outcome(stage, f"warm {command}", *command)
            cold = await outcome(stage, f"cold {command}", *COLD, *command)
            assert warm == cold, command
            assert await is_warm(stage, f"warm {command}")
            assert not await is_warm(stage, f"cold {command}")


TORCH = """
import os, random, time
begun = time.time()
import torch, numpy
seeds = [torch.initial_seed(), random.random(), numpy.random.rand(), torch.rand(1).item()]
print("seeds", *seeds, flush=True)
print("threads", torch.get_num_threads(), os.environ["OMP_NUM_THREADS"])
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.AdamW(model.parameters())
model(torch.randn(512, 64)).square().sum().backward()
optimizer.step()
numpy.ones((300, 300)) @ numpy.ones((300, 300))
print("begun", begun, "stepped", time.time())
"""


@scenario
async def test_a_warm_member_trains_at_once_with_its_own_seeds_and_threads(tmp_path: Path) -> None:
    async with staged(tmp_path, "--warm", "1", "--slots", "2") as stage:
        script = stage.script("train.py", TORCH)
        await outcome(stage, "first", script)  # by now the template is ready
        begun: list[float] = []
        for member in ("a", "b", "c"):
            before = time.time()
            stage.start(member, sys.executable, script, OMP_NUM_THREADS="2")
            await exit_of(stage, member)
            assert await is_warm(stage, member)
            assert stage.coordinator.lines(member, "stderr") == []
            report = "\n".join(stage.coordinator.lines(member))
            assert "threads 2 2" in report
            times = re.search(r"begun (\S+) stepped (\S+)", report)
            assert times is not None
            begun.append(float(times[1]) - before)
            assert float(times[2]) - before < 1.0
        assert "threads 1 1" in stage.coordinator.lines("first")
        assert min(begun) < 0.1  # 10 ms on a quiet machine; cold it takes a second
        seeds = [seed for m in "abc" for seed in stage.coordinator.lines(m)[0].split()[1:]]
        assert len(set(seeds)) == len(seeds)


@scenario
async def test_standbys_and_warm_members_die_with_their_agent(tmp_path: Path) -> None:
    async with staged(tmp_path, "--warm", "1") as stage:
        script = stage.script("sleeps.py", "import time; print('up', flush=True); time.sleep(1000)")
        stage.start("m1", sys.executable, script)
        stage.start("m2", sys.executable, script)
        pids = [(await start_of(stage, name)).pid for name in ("m1", "m2")]
        await stage.coordinator.line("up")
        pids += map(int, children_of(stage.pid))  # the template, the standby and the guard too
        stage.agent.kill()
        for pid in pids:
            await ended(pid)


@scenario
async def test_a_member_that_waits_for_the_template_can_be_stopped(tmp_path: Path) -> None:
    async with staged(tmp_path, "--warm", "1") as stage:
        script = stage.script("sleeps.py", "import time; time.sleep(1000)")
        stage.start("m1", sys.executable, script)
        stage.coordinator.say(StopMember("m1", 10.0))
        stage.agent.terminate()
        assert await stage.exit_code() == 0


@scenario
async def test_members_start_cold_where_torch_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "torch.py").write_text("raise ImportError('no torch here')")
    path = f"{SOURCE}:{tmp_path / 'hidden'}"
    async with staged(tmp_path, "--warm", "1", PYTHONPATH=path) as stage:
        code, stdout, _ = await outcome(stage, "m1", stage.script("hello.py", "print('hello')"))
        assert (code, stdout) == (0, ["hello"])
        assert not await is_warm(stage, "m1")
        assert stage.agent.stderr is not None
        line = (await stage.agent.stderr.readline()).decode()
        assert "no warm standby: torch cannot be imported; retrying" in line


@scenario
async def test_a_new_template_takes_over_after_a_death(tmp_path: Path) -> None:
    async with staged(tmp_path, "--warm", "1") as stage:
        hello = stage.script("hello.py", "print('hello')")
        await outcome(stage, "m1", hello)
        assert await is_warm(stage, "m1")
        template = template_of(stage.pid)
        send_signal(template, signal.SIGKILL)
        await ended(template)
        assert stage.agent.stderr is not None
        line = (await stage.agent.stderr.readline()).decode()
        assert "no warm standby: its template ended (-9); retrying in 1 s" in line
        await outcome(stage, "m2", hello)
        await outcome(stage, "m3", hello)  # all standbys are used up by now
        number = 4
        while template_of(stage.pid) == 0 or not await is_warm(stage, f"m{number - 1}"):
            assert (await outcome(stage, f"m{number}", hello))[1] == ["hello"]
            number += 1


def template_of(agent: int) -> int:
    """The pid of an agent's template, 0 if it has none. Standbys are younger than it."""
    found = [pid for pid in children_of(agent) if b"runtime.warm" in command_line(pid)]
    return min(map(int, found), default=0)


def children_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def command_line(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("python train.py -m x", Program("python", "train.py", False, ("-m", "x"))),
        ("python3 -u train.py", Program("python3", "train.py", False, ())),
        ("python -m pkg.mod a", Program("python", "pkg.mod", True, ("a",))),
        ("python -O train.py", None),
        ("python -c pass", None),
        ("python -m", None),
        ("python", None),
        ("bash train.sh", None),
    ],
)
def test_only_plain_command_lines_are_understood(command: str, program: Program | None) -> None:
    assert parse_command(tuple(command.split())) == program
