"""`midflight runs` and `midflight stop`: runs by their names, whatever is left of them."""

import json
import os
import signal
from typing import Any

import pytest

from tests.run.scripts import RANK, WAIT, python
from tests.run.site import Site, eventually


def listed(site: Site) -> dict[str, dict[str, Any]]:
    done = site.command("runs", "-o", "json")
    assert done.returncode == 0, done.stderr
    return {run["name"]: run for run in json.loads(done.stdout)}


def requests(site: Site) -> list[dict[str, Any]]:
    done = site.command("events", "--who", "demo", "-o", "json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def kill(site: Site, *words: str) -> None:
    pids = [pid for word in words for pid in site.processes(word)]
    assert len(pids) == len(words)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def test_a_run_is_stopped_by_its_name(site: Site) -> None:
    run = site.launch("--name", "demo", "-np", "2", "--", *python(WAIT))
    run.says("up", times=2)
    seen = listed(site)["demo"]
    assert (seen["status"], seen["members"]) == ("starting", 2)
    words = ("resize", "demo", "--remove-member", "nobody")
    assert site.command(*words, "--timeout", "0.01s").returncode == 1
    done = site.command("stop", "demo")
    assert (done.returncode, done.stdout) == (0, "the run demo has ended\n"), done.stderr
    assert run.ends() == 1
    assert site.processes() == {}
    assert listed(site)["demo"]["status"] == "failed"
    assert site.command("stop", "demo").stdout == "the run demo is over already (failed)\n"
    asked = requests(site)
    assert [each["what"] for each in asked] == [" ".join(words), "stop demo"]
    assert [each["outcome"] for each in asked] == ["refused", "done"]
    assert {(each["uid"], each["from"]) for each in asked} == {(os.geteuid(), "127.0.0.1")}


@pytest.mark.parametrize(
    ("victims", "status"),
    [(["midflight.run"], "starting"), (["midflight.run", "midflight.coordinator"], "interrupted")],
)
def test_a_run_whose_launcher_was_killed_is_stopped_by_its_name(
    site: Site, victims: list[str], status: str
) -> None:
    run = site.launch("--name", "demo", "-np", "2", "--", *python(WAIT))
    run.says("up", times=2)
    kill(site, *victims)
    assert listed(site)["demo"]["status"] == status
    done = site.command("stop", "demo")
    assert (done.returncode, done.stdout) == (0, "the run demo has ended\n"), done.stderr
    eventually(lambda: site.processes() == {}, but=lambda: str(site.processes()))
    assert listed(site)["demo"]["status"] == "failed"
    assert [(each["what"], each["uid"]) for each in requests(site)] == [("stop demo", os.geteuid())]
    assert site.launch("--name", "demo", "-np", "1", "--", *python(RANK)).ends() == 0


def test_runs_are_listed_newest_first(site: Site) -> None:
    for name in ("first", "second"):
        assert site.launch("--name", name, "-np", "1", "--", *python(RANK)).ends() == 0
    assert site.command("runs", "-o", "name").stdout == "second\nfirst\n"
    lines = site.command("runs").stdout.splitlines()
    assert lines[0].split() == ["NAME", "STATUS", "MEMBERS", "STEP", "AGE", "COMMAND"]
    assert lines[1].split()[:3] == ["second", "succeeded", "0/1"]
    assert max(map(len, lines)) <= 100


def test_runs_that_ended_are_pruned_and_others_are_not(site: Site) -> None:
    assert site.launch("--name", "over", "-np", "1", "--", *python(RANK)).ends() == 0
    site.launch("--name", "cut-off", "-np", "1", "--", *python(WAIT)).says("up")
    kill(site, "midflight.run", "midflight.coordinator")
    assert site.command("prune", "--runs", "--since", "1h").stdout == "No run needs to be deleted\n"
    done = site.command("prune", "--runs", "--since", "0s")
    assert done.stdout.startswith("Delete run over with Age "), done.stderr
    assert set(listed(site)) == {"cut-off"}
    assert site.command("stop", "cut-off").returncode == 0


def test_only_a_run_can_be_stopped(site: Site) -> None:
    done = site.command("stop", "nobody")
    assert done.returncode == 1
    assert done.stderr == "midflight: error: no run is named 'nobody'; known runs: none yet\n"
