"""The faults of Arena and et-operator that a user meets on the command line, none of which is here.

Numbers and letters are those of the reference's list; `tests/controller/test_faults.py` shows the
same at the level of decisions. What makes sense inside Kubernetes only:

11. the role with a misspelt resource, and the right to enter any pod: there are no roles here;
12. ssh as root into every worker: agents call the launcher, nobody is entered;
17. no tests: these are some.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from midflight.client import Client
from midflight.errors import Refused
from tests.guides.terminal import Terminal, table_under

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    with Terminal(tmp_path_factory.mktemp("faults")) as opened:
        opened.types("midflight up --nodes 3 --gpus-per-node 4")
        yield opened


@pytest.fixture(autouse=True)
def no_jobs_stay(terminal: Terminal) -> Iterator[None]:
    yield
    if names := terminal.types("midflight list -o name").lines:
        terminal.types(f"midflight delete {' '.join(names)}")


def client(terminal: Terminal) -> Client:
    return Client(terminal.home / "server.sock")


def get(terminal: Terminal, name: str, flags: str = "") -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(terminal.types(f"midflight get {name} -o json {flags}").out)
    return shown


def statuses(shown: str) -> dict[str, str]:
    return {each["name"]: each["status"] for each in json.loads(shown)["instances"]}


def start(terminal: Terminal, name: str, flags: str = "", command: str = "sleep 600") -> None:
    """An etjob whose command trains nothing, with all its instances running."""
    terminal.types(f"arena submit et --name={name} --run-in=launcher {flags} '{command}'")
    await_running(terminal, name)


def await_running(terminal: Terminal, name: str) -> dict[str, str]:
    line = f"midflight get {name} -o json"
    return statuses(terminal.until(line, lambda out: set(statuses(out).values()) == {"Running"}))


def launcher(job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in job["instances"] if each["chief"])
    return found


def test_1_jobs_of_one_name_in_two_namespaces_leave_each_other_alone(terminal: Terminal) -> None:
    start(terminal, "same", "--workers=2")
    terminal.types("arena -n other submit et --name=same --run-in=launcher 'sleep 600'")
    terminal.types("arena wait same -n other --for=running")
    there = get(terminal, "same", "-n other")
    terminal.types("arena scalein et --name=same --count=1 --wait")
    terminal.types("arena delete same")
    after = get(terminal, "same", "-n other")
    assert [each["name"] for each in after["instances"]] == ["same-launcher", "same-worker-0"]
    assert launcher(after)["pid"] == launcher(there)["pid"]
    terminal.types("arena delete -n other same")


def test_2_a_misspelt_worker_takes_nobody_away(terminal: Terminal) -> None:
    start(terminal, "typo", "--workers=2")
    said = terminal.types("arena scalein et --name=typo --pod-names=typo-wroker-1 --wait", code=1)
    assert "typo-wroker-1" in said.err and said.err.count("\n") == 1
    assert len(await_running(terminal, "typo")) == 3
    assert get(terminal, "typo")["operations"] == []


def test_3_a_count_of_zero_is_refused_and_the_server_lives(terminal: Terminal) -> None:
    start(terminal, "zero")
    pid = json.loads(terminal.types("midflight status -o json").out)["pid"]
    for kind in ("scaleout", "scalein"):
        said = terminal.types(f"arena {kind} et --name=zero --count=0", code=2)
        assert said.err == "midflight: error: --count is invalid: wanted at least 1, got 0\n"
    with pytest.raises(Refused, match="wanted at least 1, got 0"):  # as another client might ask
        client(terminal).scale("default", "zero", {"kind": "scalein", "count": 0})
    assert json.loads(terminal.types("midflight status -o json").out)["pid"] == pid


def test_4_the_server_keeps_the_limits(terminal: Terminal) -> None:
    start(terminal, "limits", "--workers=2 --min-workers=2 --max-workers=3")
    for kind, count, word in (("scaleout", 2, "max-workers"), ("scalein", 1, "min-workers")):
        said = terminal.types(f"arena {kind} et --name=limits --count={count}", code=1)
        assert word in said.err and said.out == ""
        with pytest.raises(Refused, match=word):
            client(terminal).scale("default", "limits", {"kind": kind, "count": count})
    assert get(terminal, "limits")["workers"] == 2


def test_5_and_9_a_launcher_that_is_lost_comes_back_and_knows_the_hosts_of_now(
    terminal: Terminal,
) -> None:
    start(terminal, "spof", command="wc -l < $MIDFLIGHT_HOSTFILE; sleep 600")
    terminal.types("arena scaleout et --name=spof --count=1 --wait")
    before = launcher(get(terminal, "spof"))
    terminal.types("midflight chaos kill spof spof-launcher")
    terminal.until("arena logs spof", lambda out: out.split() == ["1", "2"])
    node = launcher(get(terminal, "spof"))["node"]
    terminal.types(f"midflight node drain {node}")
    terminal.until("arena logs spof", lambda out: out.split() == ["1", "2", "2"])
    await_running(terminal, "spof")
    after = launcher(get(terminal, "spof"))
    assert after["node"] != node and after["pid"] != before["pid"]
    terminal.types(f"midflight node return {node}")
    terminal.types("arena scalein et --name=spof --count=1 --wait")


def test_6_and_i_a_job_runs_with_less_than_wanted_and_everybody_says_so(terminal: Terminal) -> None:
    terminal.types("arena submit et --name=some --workers=4 --gpus=4 --run-in=launcher 'sleep 60'")
    terminal.types("arena wait some --for=running --timeout=60s")
    job = get(terminal, "some")
    assert [each["name"] for each in job["instances"] if each["status"] == "Pending"] == [
        "some-worker-3"
    ]
    assert "some-worker-3 waits" in job["reason"]
    (row,) = table_under("NAME", terminal.types("arena list").out)
    assert row["STATUS"] == job["status"] == "RUNNING"
    said = terminal.types("arena scalein et --name=some --count=1 --wait")
    assert said.code == 0
    assert get(terminal, "some")["workers"] == 3


def test_7_and_14_what_cannot_be_placed_is_taken_back_while_failures_are_seen_once(
    terminal: Terminal,
) -> None:
    start(terminal, "queue", "--workers=2 --gpus=4")
    first = terminal.types("arena scaleout et --name=queue --count=2 --timeout=3s").lines
    second = terminal.types("arena scaleout et --name=queue --count=1 --timeout=60s").lines
    terminal.types("midflight chaos kill queue queue-worker-0")
    terminal.until(
        "midflight get queue -o json",
        lambda out: (
            [each["progress"] for each in json.loads(out)["operations"]] == ["failed", "succeeded"]
        ),
    )
    job = get(terminal, "queue")
    ids = [line.split()[0].split("/")[1] for line in (*first, *second)]
    assert [each["id"] for each in job["operations"]] == ids
    assert job["workers"] == 3
    await_running(terminal, "queue")
    events = json.loads(terminal.types("midflight events queue -o json").out)
    lost = [each for each in events if each["reason"] == "Failed"]
    assert [each["source"] for each in lost] == ["instance/queue-worker-0"]


def test_8_worker_1_is_not_worker_10(terminal: Terminal) -> None:
    start(terminal, "many", "--workers=11")
    terminal.types("arena scalein et --name=many --pod-names=many-worker-1 --timeout=30s --wait")
    left = await_running(terminal, "many")
    assert left.keys() == {"many-launcher", *(f"many-worker-{n}" for n in range(11) if n != 1)}


def test_10_logs_stay_after_the_end_and_processes_are_asked_before_they_are_killed(
    terminal: Terminal,
) -> None:
    said = terminal.types("arena submit pytorch --name=over --workers=2 --wait 'echo rank $RANK'")
    assert "has ended, SUCCEEDED" in said.err
    assert terminal.types("arena logs over -i over-worker-0").lines == ["rank 1"]
    both = terminal.types("arena logs over --all").lines
    assert sorted(both) == ["[over-master-0] rank 0", "[over-worker-0] rank 1"]
    polite = 'trap "echo saved > saved; exit" TERM; echo ready; while :; do sleep 0.1; done'
    start(terminal, "polite", command=polite)
    terminal.until("arena logs polite", lambda out: "ready" in out)
    terminal.types("arena delete polite")
    assert (terminal.folder / "saved").read_text() == "saved\n"


def test_13_a_job_that_starts_again_never_meets_its_old_self(terminal: Terminal) -> None:
    command = (
        "mkdir here || exit 9; echo begun; trap \"rmdir here\" EXIT; "
        "test -e again && exit 0; touch again; exit 1"
    )  # fmt: skip
    terminal.types(
        f"arena submit et --name=twice --run-in=launcher --retry=2 --wait '{command}'",
    )
    assert terminal.types("arena logs twice").lines == ["begun", "begun"]


def test_15_what_was_asked_of_a_job_goes_with_it(terminal: Terminal) -> None:
    start(terminal, "again")
    terminal.types("arena scaleout et --name=again --wait")
    assert len(get(terminal, "again")["operations"]) == 1
    terminal.types("arena delete again")
    start(terminal, "again")
    assert get(terminal, "again")["operations"] == []


def test_16_a_gang_is_placed(terminal: Terminal) -> None:
    start(terminal, "gang", "--gang --workers=2 --gpus=1")


# --- Arena's side -------------------------------------------------------------------------------


def test_a_and_d_gpus_and_ages_are_true_after_scaling(terminal: Terminal) -> None:
    start(terminal, "sizes", "--workers=1 --gpus=2")
    terminal.types("arena scaleout et --name=sizes --count=2 --wait")
    (row,) = table_under("NAME", terminal.types("arena list -o wide").out)
    assert (row["GPU(Requested)"], row["GPU(Allocated)"]) == ("6", "6")
    ages = {each["name"]: each["age"] for each in get(terminal, "sizes")["instances"]}
    assert ages["sizes-worker-2"] < ages["sizes-worker-0"]
    terminal.types("arena scalein et --name=sizes --count=1 --wait")
    row = table_under("NAME", terminal.types("arena list -o wide").out)[0]
    assert (row["GPU(Requested)"], row["GPU(Allocated)"]) == ("4", "4")
    assert "4/12 (33%)" in terminal.types("arena top node").out


def test_b_and_c_a_finished_job_stands_still_and_is_all_that_prune_takes(
    terminal: Terminal,
) -> None:
    terminal.types("arena submit et --name=done --run-in=launcher --wait true")
    before = get(terminal, "done")
    start(terminal, "runs")
    terminal.types("arena submit pytorch --name=pends --gpus=9 true")
    terminal.until("midflight get runs -o json", lambda out: json.loads(out)["duration"] > 1)
    after = get(terminal, "done")
    assert (after["duration"], after["endTime"]) == (before["duration"], before["endTime"])
    assert "Delete etjob done with Age" in terminal.types("arena prune --since=1s").out
    assert sorted(terminal.types("arena list -o name").lines) == ["pends", "runs"]
    assert terminal.types("arena prune --since=1s").out == "No job need to be deleted\n"


def test_e_every_name_is_deleted_and_a_missing_one_is_told_by_the_exit_code(
    terminal: Terminal,
) -> None:
    for name in ("first", "last"):
        terminal.types(f"arena submit et --name={name} --run-in=launcher 'sleep 600'")
    said = terminal.types("arena delete first nobody last", code=1)
    assert "The training job 'nobody' does not exist,skip to delete it" in said.err
    assert terminal.types("arena list -o name").lines == []


ODD = r"""a "b" \n 'c' $HOME, d: {{ e }} # f"""


def test_f_odd_values_and_commands_arrive_as_they_were_typed(
    terminal: Terminal, tmp_path: Path
) -> None:
    (tmp_path / "odd").write_text(ODD)
    terminal.types(
        f'arena submit pytorch --name=odd -e ODD="$(cat {tmp_path}/odd)" --wait '
        """'printf "%s\\n" "$ODD" "x: {y} # z"'"""
    )
    assert terminal.types("arena logs odd").lines == [ODD, "x: {y} # z"]


def test_g_no_other_program_is_needed_and_no_name_reaches_a_shell(terminal: Terminal) -> None:
    assert not any("kubectl" in words for words in terminal.processes().values())
    said = terminal.types(
        "PATH=${PATH%%:*} midflight delete 'x; touch bitten' '$(touch bitten)'", code=1
    )
    assert said.err.count("does not exist") == 2
    terminal.types("midflight submit et --name='x; touch bitten' true", code=2)
    assert not (terminal.folder / "bitten").exists()


@pytest.mark.parametrize("wrong", ["--cpu=many", "--gpus=-1", "--toleration=x --device=nothing"])
def test_h_what_is_wrong_with_an_etjob_is_not_swallowed(terminal: Terminal, wrong: str) -> None:
    said = terminal.types(f"arena submit et --name=wrong {wrong} true", code=2)
    assert said.out == "" and said.err.count("\n") == 1
    assert terminal.types("arena list -o name").lines == []


def test_j_submitting_again_touches_nothing_that_is_there(terminal: Terminal) -> None:
    start(terminal, "twin")
    before = get(terminal, "twin")
    said = terminal.types("arena submit et --name=twin --run-in=launcher false", code=1)
    assert "the job twin is already exist, please delete it first. use 'arena delete twin'" in (
        said.err
    )
    after = get(terminal, "twin")
    assert (after["uid"], after["instances"][0]["pid"]) == (
        before["uid"],
        before["instances"][0]["pid"],
    )
