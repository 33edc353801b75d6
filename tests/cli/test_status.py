"""`midflight status` on real runs: while they live, and when they are over."""

import json
import signal
from dataclasses import replace

from midflight.cli.verbs.status import as_text
from midflight.protocol.messages import HostStatus, MemberStatus, Status
from tests.run.scripts import RANK, WAIT, python
from tests.run.site import Site


def test_a_living_run_is_shown_member_by_member(site: Site) -> None:
    run = site.launch("--name", "demo", "-np", "2", "--", *python(WAIT))
    run.says("up", times=2)
    status = site.status("demo")
    assert (status["name"], status["wanted"], status["minNp"], status["maxNp"]) == (
        *("demo", 2, 2, 2),
    )
    assert {member["pid"] for member in status["members"]} == site.members(WAIT)
    assert set(status["members"][0]) == {"name", "rank", "host", "pid", "step", "state"}
    assert status["hosts"] == [{"name": "localhost", "slots": 2, "connected": True, "cooling": 0.0}]
    run.send(signal.SIGINT)
    run.ends()


def test_a_run_that_is_over_is_shown_as_it_was_saved(site: Site) -> None:
    assert site.launch("--name", "demo", "-np", "1", "--", *python(RANK)).ends() == 0
    done = site.command("status", "demo")
    assert done.returncode == 0
    assert done.stderr == ""
    assert "phase:      succeeded" in done.stdout
    assert json.loads(site.command("status", "demo", "-o", "json").stdout)["step"] == 0


def test_a_run_that_is_over_cannot_be_resized(site: Site) -> None:
    assert site.launch("--name", "demo", "-np", "1", "--", *python(RANK)).ends() == 0
    done = site.command("resize", "demo", "--to", "2")
    assert done.returncode == 1
    assert done.stderr == "midflight: error: the run demo is over (succeeded); nothing to resize\n"


def test_columns_are_aligned() -> None:
    members = (
        MemberStatus("m0", 0, "localhost", 4711, 12, "active"),
        MemberStatus("m10", None, "127.0.0.1", 0, 0, "starting"),
    )
    hosts = (HostStatus("localhost", 2, True, 0.0), HostStatus("127.0.0.1", 10, False, 4.6))
    text = as_text(Status("demo", "preparing", "1 to 2", 3, 12, 2, 1, 9, 0, members, hosts))
    assert text.splitlines()[-7:] == [
        "MEMBER  RANK  HOST       PID   STEP  STATE",
        "m0      0     localhost  4711  12    active",
        "m10     -     127.0.0.1  -     0     starting",
        "",
        "HOST       SLOTS  CONNECTED  COOLING (S)",
        "localhost  2      yes        -",
        "127.0.0.1  10     no         5",
    ]


def test_the_speed_and_what_was_logged_are_shown_once_they_are_known() -> None:
    resting = Status("demo", "stable", "", 3, 12, 2, 1, 9, 0, (), ())
    assert "speed" not in as_text(resting) and "logged" not in as_text(resting)
    busy = replace(resting, steps_per_second=20.0, logged={"loss": 0.25, "lr": None})
    assert as_text(busy).endswith("speed:      20 steps/s\nlogged:     loss 0.25, lr not finite")


def test_a_run_is_shown_in_the_formats_of_all_verbs(site: Site) -> None:
    assert site.launch("--name", "demo", "-np", "1", "--", *python(RANK)).ends() == 0
    assert "\nmaxNp: 1\n" in site.command("status", "demo", "-o", "yaml").stdout
    assert site.command("status", "demo", "-o", "name").stdout == "demo\n"
