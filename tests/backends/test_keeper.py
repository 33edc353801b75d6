"""The keeper by itself: what it writes down, how it ends an instance, and that nobody is left."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from midflight.backends.local import identity, keeper
from tests.backends.instances import (
    PATIENCE,
    ended,
    kept,
    plan,
    printed,
    python,
    send,
    shell,
    started,
    state,
    texts,
    until,
)

pytestmark = pytest.mark.slow  # real processes

# A child in its group, one in a session of its own, and one that nobody waits for and that has
# thrown its environment away.
FAMILY = """
import os, subprocess, time
near = subprocess.Popen(["sleep", "1000"])
far = subprocess.Popen(["sleep", "1000"], start_new_session=True)
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if (pid := os.fork()) == 0:
        os.execvpe("sleep", ["sleep", "1000"], {"PATH": os.environ["PATH"]})
    os.write(write, str(pid).encode())
    os._exit(0)
print("family", near.pid, far.pid, os.read(read, 20).decode())
"""


def test_an_instance_that_ends_by_itself_leaves_its_code_and_its_output(tmp_path: Path) -> None:
    with kept(tmp_path, shell("echo one; echo two >&2; exit 3")) as process:
        assert process.wait(PATIENCE) == 0
    found = state(tmp_path)
    assert (found["attempt"], found["code"], found["reason"]) == (1, 3, "")
    assert found["pid"] > 1
    assert found["start_time"].isdecimal()
    assert found["started_at"] <= found["ended_at"]
    assert sorted(texts(tmp_path)) == ["one", "two"]
    assert {line.split()[1] for line in (tmp_path / "log").read_text().splitlines()} == {
        "stdout",
        "stderr",
    }


def test_an_instance_that_dies_of_a_signal_has_its_number_as_code(tmp_path: Path) -> None:
    with kept(tmp_path, shell("kill -SEGV $$")) as process:
        process.wait(PATIENCE)
    assert state(tmp_path)["code"] == -signal.SIGSEGV


def test_sigterm_lets_the_first_process_end_in_its_own_way(tmp_path: Path) -> None:
    script = "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.05; done"
    with kept(tmp_path, shell(script)) as process:
        printed(tmp_path, "up")
        process.terminate()
        process.wait(PATIENCE)
    assert (state(tmp_path)["code"], state(tmp_path)["reason"]) == (7, "stopped")
    assert texts(tmp_path)[-1] == "bye"


def test_a_stopped_process_is_woken_to_hear_sigterm(tmp_path: Path) -> None:
    with kept(
        tmp_path, shell("trap 'exit 5' TERM; echo up; while :; do sleep 0.05; done")
    ) as process:
        printed(tmp_path, "up")
        send(started(tmp_path), signal.SIGSTOP)
        process.terminate()
        process.wait(PATIENCE)
    assert state(tmp_path)["code"] == 5


def test_what_a_shell_leaves_behind_when_it_is_stopped_may_end_in_its_own_way_too(
    tmp_path: Path,
) -> None:
    child = "trap 'sleep 0.2; echo bye; exit' TERM; echo up; while :; do sleep 0.05; done"
    with kept(tmp_path, shell(f'sh -c "{child}"; true')) as process:
        printed(tmp_path, "up")
        process.terminate()
        process.wait(PATIENCE)
    assert state(tmp_path)["code"] == -signal.SIGTERM
    assert texts(tmp_path)[-1] == "bye"


def test_an_instance_that_ignores_sigterm_is_killed_after_its_grace(tmp_path: Path) -> None:
    order = python(
        FAMILY + "import signal\nsignal.signal(15, lambda *_: print('no'))\n"
        "print('up')\nwhile True: time.sleep(100)",
        grace=0.3,
    )
    with kept(tmp_path, order) as process:
        family = [int(pid) for pid in printed(tmp_path, "family")]
        printed(tmp_path, "up")
        process.terminate()
        printed(tmp_path, "no")
        process.wait(PATIENCE)
    assert state(tmp_path)["code"] == -signal.SIGKILL
    assert state(tmp_path)["reason"] == "killed: it did not end in time"
    assert not [pid for pid in family if identity.start_time(pid)]


def test_the_grace_may_be_said_when_it_is_needed(tmp_path: Path) -> None:
    with kept(tmp_path, shell("trap '' TERM; echo up; sleep 1000", grace=1000.0)) as process:
        printed(tmp_path, "up")
        (tmp_path / "grace").write_text("0.1")
        process.terminate()
        assert process.wait(PATIENCE) == 0


def test_a_second_sigterm_does_not_wait(tmp_path: Path) -> None:
    script = "trap 'echo asked' TERM; echo up; while :; do sleep 0.05; done"
    with kept(tmp_path, shell(script, grace=1000.0)) as process:
        printed(tmp_path, "up")
        process.terminate()
        printed(tmp_path, "asked")
        process.terminate()
        process.wait(PATIENCE)
    assert state(tmp_path)["reason"] == "killed"


def test_asked_by_sigusr2_again_and_again_it_still_waits(tmp_path: Path) -> None:
    script = "trap 'echo asked' TERM; trap 'exit 4' HUP; echo up; while :; do sleep 0.05; done"
    with kept(tmp_path, shell(script, grace=1000.0)) as process:
        printed(tmp_path, "up")
        process.send_signal(signal.SIGUSR2)
        printed(tmp_path, "asked")
        process.send_signal(signal.SIGUSR2)
        send(started(tmp_path), signal.SIGHUP)
        process.wait(PATIENCE)
    assert state(tmp_path)["code"] == 4
    assert texts(tmp_path).count("asked") == 1


def test_sigusr1_kills_at_once(tmp_path: Path) -> None:
    with kept(tmp_path, python(FAMILY + "time.sleep(1000)", grace=1000.0)) as process:
        family = [int(pid) for pid in printed(tmp_path, "family")]
        process.send_signal(signal.SIGUSR1)
        process.wait(PATIENCE)
    assert state(tmp_path)["code"] == -signal.SIGKILL
    assert not [pid for pid in family if identity.start_time(pid)]


def test_hangups_and_interrupts_do_not_touch_a_keeper(tmp_path: Path) -> None:
    with kept(tmp_path, shell("echo up; read x < fifo; exit 2", cwd=str(tmp_path))) as process:
        os.mkfifo(tmp_path / "fifo")
        printed(tmp_path, "up")
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGINT)
        send(started(tmp_path), signal.SIGKILL)
        assert process.wait(PATIENCE) == 0
    assert "code" in state(tmp_path)


def test_nobody_survives_the_end_of_the_first_process(tmp_path: Path) -> None:
    with kept(tmp_path, python(FAMILY)) as process:
        family = [int(pid) for pid in printed(tmp_path, "family")]
        process.wait(PATIENCE)
    assert state(tmp_path)["code"] == 0
    assert len(family) == 3
    assert not [pid for pid in family if identity.start_time(pid)]


def test_the_first_process_dies_with_its_keeper(tmp_path: Path) -> None:
    with kept(tmp_path, plan("sleep", "1000")) as process:
        child = started(tmp_path)
        process.kill()
        ended(child)


def test_a_program_that_does_not_exist_is_not_started(tmp_path: Path) -> None:
    with kept(tmp_path, plan("no-such-program")) as process:
        process.wait(PATIENCE)
    found = state(tmp_path)
    assert found["not_started"] == "cannot run 'no-such-program': No such file or directory"
    assert "code" not in found


def test_a_working_directory_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with kept(tmp_path, plan("true", cwd=str(tmp_path / "nowhere"))) as process:
        process.wait(PATIENCE)
    reason = state(tmp_path)["not_started"]
    assert reason.startswith(f"cannot enter its working directory '{tmp_path}/nowhere': No such")


def test_an_attempt_is_made_once(tmp_path: Path) -> None:
    order = shell("echo made")
    for _ in range(2):
        with kept(tmp_path, order) as process:
            code = process.wait(PATIENCE)
    assert code == keeper.DONE_BEFORE
    with kept(tmp_path, {**order, "attempt": 2}) as process:
        assert process.wait(PATIENCE) == 0
    assert texts(tmp_path) == ["made", "made"]


def test_a_folder_has_one_keeper(tmp_path: Path) -> None:
    order = plan("sleep", "1000")
    with kept(tmp_path, order):
        child = started(tmp_path)
        words = [sys.executable, "-I", "-S", keeper.__file__, str(tmp_path)]
        assert subprocess.run(words, timeout=PATIENCE).returncode == keeper.BUSY
        assert identity.start_time(child)


def test_a_plan_that_cannot_be_used_starts_nothing(tmp_path: Path) -> None:
    with kept(tmp_path, {"mark": "", "argv": ["true"]}) as process:
        assert process.wait(PATIENCE) == keeper.BAD_PLAN
    assert not state(tmp_path)


def test_memory_is_limited_for_each_process_where_there_is_no_cgroup(tmp_path: Path) -> None:
    limits = {"memory": 256 << 20, "cpus": None, "cgroup": ""}
    code = "try: bytearray(400 << 20)\nexcept MemoryError: print('too much')"
    with kept(tmp_path, python(code, limits=limits)) as process:
        process.wait(PATIENCE)
    assert texts(tmp_path) == ["too much"]


def test_an_instance_has_its_mark_a_session_of_its_own_and_no_foreign_files(
    tmp_path: Path,
) -> None:
    code = (
        "import os\n"
        "print(os.environ['MIDFLIGHT_INSTANCE_MARK'], os.getcwd())\n"
        "ignored = open('/proc/self/status').read().split('SigIgn:')[1].split()[0]\n"
        "print(int(ignored, 16) & 0b111)\n"  # SIGHUP, SIGINT, SIGQUIT
        "print(sorted(map(int, os.listdir('/proc/self/fd')))[:-1], os.getsid(0) == os.getpid())"
    )
    order = python(code, cwd=str(tmp_path))
    with kept(tmp_path, order) as process:
        process.wait(PATIENCE)
    assert texts(tmp_path) == [f"{order['mark']} {tmp_path}", "0", "[0, 1, 2] True"]


def test_a_very_long_line_is_written_in_parts(tmp_path: Path) -> None:
    with kept(tmp_path, python("print('x' * 40000); print('y', end='')")) as process:
        process.wait(PATIENCE)
    flags = [line.split(" ", 3)[2:] for line in (tmp_path / "log").read_text().splitlines()]
    assert [flag for flag, _ in flags] == ["P", "P", "F", "P", "F"]
    assert "".join(text for _, text in flags[:3]) == "x" * 40000
    assert flags[3:] == [["P", "y"], ["F", ""]]


def test_logs_are_rotated_by_size(tmp_path: Path) -> None:
    order = python("for i in range(100): print(f'line {i:03}')", log_bytes=500, log_files=4)
    with kept(tmp_path, order) as process:
        process.wait(PATIENCE)
    names = sorted(path.name for path in tmp_path.glob("log*"))
    assert names == ["log", "log.1", "log.2", "log.3"]
    assert all(path.stat().st_size <= 500 for path in tmp_path.glob("log*"))
    last = texts(tmp_path)
    assert last == [f"line {i:03}" for i in range(100 - len(last), 100)]
    assert 20 < len(last) < 100


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(folder)]
    if not shutil.which("mount") or subprocess.run(words, capture_output=True).returncode:
        pytest.skip("this user may not mount")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    filler = folder / "filler"
    with pytest.raises(OSError), open(filler, "wb", buffering=0) as file:
        while True:
            file.write(bytes(1024))
    return filler


def test_a_full_disk_loses_log_lines_and_says_so_but_never_the_instance(small_disk: Path) -> None:
    code = (
        "print('before')\n"
        "open('go-1').read()\n"
        "for i in range(5000): print('lost', i)\n"
        "print('x' * 70000)\n"
        "open('done', 'w').close()\n"
        "open('go-2').read()\n"
        "print('after')\n"
        "open('go-3').read()"
    )
    for name in ("go-1", "done", "go-2", "go-3"):
        os.mkfifo(small_disk / name)
    with kept(small_disk, python(code, cwd=str(small_disk))) as process:
        printed(small_disk, "before")
        filler = fill(small_disk)
        (small_disk / "go-1").write_text("")
        (small_disk / "done").read_text()
        filler.unlink()
        (small_disk / "go-2").write_text("")
        printed(small_disk, "after")
        fill(small_disk)
        (small_disk / "go-3").write_text("")
        ended(started(small_disk))
        assert process.poll() is None, "the end is not known yet"
        filler.unlink()
        process.wait(PATIENCE)
    assert state(small_disk)["code"] == 0
    lines = texts(small_disk)
    assert any(line.startswith("… ") and "lines lost" in line for line in lines)
    assert all(line.startswith(("before", "lost ", "…", "after", "x")) for line in lines)


def test_nothing_is_started_where_nothing_can_be_written(small_disk: Path) -> None:
    order = shell("touch /nowhere")
    (small_disk / "plan.json").write_text(json.dumps(order))
    fill(small_disk)
    words = [sys.executable, "-I", "-S", keeper.__file__, str(small_disk)]
    done = subprocess.run(words, capture_output=True, timeout=PATIENCE)
    assert done.returncode == keeper.CANNOT_WRITE
    assert not state(small_disk)


def test_a_keeper_loads_nothing_but_a_little_of_the_standard_library(tmp_path: Path) -> None:
    with kept(tmp_path, plan("sleep", "1000")) as process:
        started(tmp_path)
        maps = Path(f"/proc/{process.pid}/maps").read_text()
        status = Path(f"/proc/{process.pid}/status").read_text()
    code = f"import sys\nexec(open({keeper.__file__!r}).read(), {{'__name__': 'keeper'}})\n"
    code += "print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, timeout=PATIENCE
    )
    assert not {"midflight", "typing", "subprocess", "threading"} & set(done.stdout.split())
    assert "site-packages" not in maps
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    assert int(resident.split()[1]) < 20_000


def test_a_folder_that_is_taken_away_does_not_hold_a_keeper(tmp_path: Path) -> None:
    folder = tmp_path / "instance"
    with kept(folder, plan("sleep", "1000")) as process:
        started(folder)
        shutil.rmtree(folder)
        process.send_signal(signal.SIGUSR1)
        assert until(lambda: process.poll() is not None)
