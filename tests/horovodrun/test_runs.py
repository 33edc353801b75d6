"""horovodrun with real processes: variables, prefixes, files, failures, hosts that come and go."""

import re
import signal
import sys
from pathlib import Path

import pytest

from tests.horovodrun.shell import horovodrun
from tests.run.scripts import python
from tests.run.site import Site, eventually

pytestmark = pytest.mark.slow

TELL = """
import importlib.util, os, shutil, sys
names = "RANK SIZE LOCAL_RANK LOCAL_SIZE CROSS_RANK CROSS_SIZE HOSTNAME".split()
print(*(os.environ["HOROVOD_" + name] for name in names))
print(os.environ["HOROVOD_FUSION_THRESHOLD"], os.environ.get("HOROVOD_ELASTIC"), file=sys.stderr)
assert os.environ["PYTHONUNBUFFERED"] == "1"
assert shutil.which("horovodrun").endswith("shims/bin/horovodrun")
assert "shims" in importlib.util.find_spec("horovod").origin
"""
FAIL = """
import os, signal, sys
if os.environ["HOROVOD_RANK"] == "1":
    os.kill(os.getpid(), int(sys.argv[1])) if len(sys.argv) > 1 else sys.exit(3)
signal.pause()
"""
EXIT = """
import sys
import horovod.torch as hvd
hvd.init()
hvd.barrier()
try:
    sys.exit("this one is caught")
except SystemExit:
    hvd.barrier()
if hvd.rank() == 1:
    sys.exit(3)
hvd.join()
"""
RAISE = """
import os, sys
import horovod.torch as hvd
bad = os.environ["HOROVOD_RANK"] == sys.argv[1]
if sys.argv[2] == "before" and bad:
    raise ValueError("no such layer")
hvd.init()
if bad:
    raise ValueError("no such layer")
hvd.barrier()
"""
ENDLESS = """
import sys
there = "torch" in sys.modules
import horovod.torch as hvd
hvd.init()
@hvd.elastic.run
def train(state):
    print(f"torch was there: {there}, rank {hvd.rank()} begins", flush=True)
    while True:
        hvd.barrier()
        state.check_host_updates()
train(hvd.elastic.ObjectState(hvd.broadcast_object, hvd.rank, batch=0))
"""
WAIT = "import os, signal; print('up', os.environ['HOROVOD_HOSTNAME']); signal.pause()"
SHORT = ("--start-timeout", "1")


def test_processes_find_their_place_and_their_output_is_kept_by_rank(site: Site) -> None:
    run = horovodrun(
        site,
        *("-np", "3", "-H", "localhost:2,127.0.0.1:1", "--output-filename", "out"),
        *("--fusion-threshold-mb", "1", "--mpi", "--ssh-port", "22", *python(TELL)),
    )
    assert run.ends() == 0, run.lines
    places = {"0 3 0 2 0 2 localhost", "1 3 1 2 0 1 localhost", "2 3 0 1 1 2 127.0.0.1"}
    assert {line for line in run.lines if "<stdout>" in line} == {
        f"[{place[0]}]<stdout>:{place}" for place in places
    }
    assert "horovodrun: ignored, it has no meaning here: --mpi, --ssh-port" in run.lines
    for rank in range(3):
        kept = site.folder / "out" / f"rank.{rank}"
        assert (kept / "stdout").read_text().startswith(f"{rank} 3 ")
        assert (kept / "stderr").read_text() == "1048576 None\n"


def test_a_script_that_ends_with_a_code_has_failed_and_not_finished(site: Site) -> None:
    run = horovodrun(site, "-np", "2", *python(EXIT))
    assert run.ends() == 1
    assert "Process 1 exit with status code 3." in run.lines
    told = next(n for n, line in enumerate(run.lines) if line.startswith("Horovod detected that"))
    assert run.lines[told:][2] == "Exit code: 3"
    reason = "midflight: error: rank 1 on localhost failed, and the job is of fixed size: "
    assert any(line.startswith(reason) for line in run.lines), run.lines


@pytest.mark.parametrize(
    ("how", "code", "name"), [([], 3, "localhost[1]"), (["9"], 137, "localhost[1]")]
)
def test_the_first_failure_ends_a_job_of_fixed_size(
    site: Site, how: list[str], code: int, name: str
) -> None:
    run = horovodrun(site, "-np", "2", *python(FAIL, *how))
    assert run.ends() == 1
    assert f"Process 1 exit with status code {code}." in run.lines
    told = next(n for n, line in enumerate(run.lines) if line.startswith("Horovod detected that"))
    assert run.lines[told:][1:3] == [f"Process name: {name}", f"Exit code: {code}"]


@pytest.mark.parametrize(
    ("rank", "flags"),
    [
        ("1", ("-np", "2", "-H", "localhost:2")),
        ("0", ("-np", "1", "--host-discovery-script", "echo localhost:1")),  # nobody goes on
    ],
)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_failed_job_says_which_rank_raised_what(
    site: Site, rank: str, flags: tuple[str, ...], when: str
) -> None:
    """`when`: of hvd.init(), which brings a process into the job's world."""
    run = horovodrun(site, *flags, *python(RAISE, rank, when))
    assert run.ends(60) == 1
    told = next(n for n, line in enumerate(run.lines) if line.startswith("Horovod detected that"))
    *_, reason = run.lines[told:]
    assert reason == f"Reason: rank {rank}: ValueError: no such layer", run.lines
    assert not [line for line in run.lines if re.search(r"\bm\d\b", line)], run.lines


def test_one_process_with_a_file_for_its_output_works(site: Site) -> None:
    flags = ("-prefix-timestamp", "--log-level", "DEBUG", "--output-filename", "out")
    run = horovodrun(site, "-np", "1", *flags, "echo", "fine")
    assert run.ends() == 0
    assert any(line.endswith("[0]<stdout>:fine") and line[3] == " " for line in run.lines)
    assert "DEBUG:root:starting 1 of 1 wanted members" in run.lines
    assert (site.folder / "out" / "rank.0" / "stdout").read_text() == "fine\n"


def test_a_discovery_script_that_fails_at_first_ends_the_job(site: Site) -> None:
    run = horovodrun(site, "-np", "1", "--host-discovery-script", "exit 3", *python(WAIT))
    assert run.ends() == 1
    failed = "Failed to execute discovery script: exit 3. Exit code: 3"
    assert f"horovodrun: error: {failed}" in run.lines


def test_an_elastic_job_begins_with_all_the_slots_that_there_are(site: Site) -> None:
    flags = ("-np", "2", "--max-np", "4", "--host-discovery-script", "echo localhost:4")
    run = horovodrun(site, *flags, *python("import os; print('of', os.environ['HOROVOD_SIZE'])"))
    assert run.ends() == 0, run.lines
    said = [line.partition("<stdout>:")[2] for line in run.lines if "<stdout>:" in line]
    assert said == ["of 4"] * 4


def test_a_newcomer_finds_torch_imported(site: Site, tmp_path: Path) -> None:
    """It is there within the few seconds that scripts wait for one."""
    listing = tmp_path / "hosts"
    listing.write_text("localhost:1\n")
    script = tmp_path / "train.py"
    script.write_text(ENDLESS)
    flags = ("-np", "1", "--host-discovery-script", f"cat {listing}")
    run = horovodrun(site, *flags, sys.executable, str(script))
    run.says("torch was there: False, rank 0 begins", within=60)  # nobody waited for a standby
    eventually(lambda: len(site.processes("midflight.runtime.warm")) > 1, within=60)
    listing.write_text("localhost:2\n")
    run.says("torch was there: True, rank 1 begins", within=60)
    listing.write_text("localhost:2\n127.0.0.1:1\n")
    run.says("rank 2 begins", within=60)
    run.send(signal.SIGINT)
    assert run.ends() == 130


def test_hosts_that_a_script_names_are_used_and_rubbish_is_ignored(
    site: Site, tmp_path: Path
) -> None:
    listing = tmp_path / "hosts"
    listing.write_text("localhost:1\n")
    run = horovodrun(
        site, "-np", "1", *SHORT, "--host-discovery-script", f"cat {listing}", *python(WAIT)
    )
    run.says("up localhost")
    listing.write_text("localhost:1\n127.0.0.1:1\n")
    run.says("up 127.0.0.1")  # nobody has asked for more than -np 1
    listing.write_text("what a: mess\n")
    run.says("keeping the hosts that it named before")
    listing.write_text("127.0.0.1:1\n")
    eventually(lambda: len(site.members(WAIT)) == 1 and len(site.processes("midflight.agent")) == 1)
    run.send(signal.SIGTERM)
    assert run.ends() == 143
    assert sum("printed something other than hosts" in line for line in run.lines) == 1


def test_too_few_slots_and_too_many_resets_end_with_the_known_sentences(site: Site) -> None:
    few = ("-np", "2", "--elastic-timeout", "1", "--host-discovery-script", "echo localhost:1")
    run = horovodrun(site, *few, *SHORT, *python(WAIT))
    assert run.ends() == 1
    assert any("at least 2 Horovod processes. Timeout after 1 seconds." in x for x in run.lines)
    limit = ("-np", "2", "--min-np", "1", "--reset-limit", "0")
    run = horovodrun(site, *limit, *SHORT, *python(FAIL))
    assert run.ends() == 1
    assert run.lines[-1].endswith("number of resets during elastic job exceeded limit: 0")
