"""`midflight audit`: what made-up ledgers prove, and what real ones look like."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from midflight.cli.audits import audit
from midflight.cli.main import main
from midflight.protocol.job import JobSpec
from midflight.rundir import RunDir
from midflight.runtime.data.audit import (
    Chain,
    Comparison,
    Record,
    Report,
    compare,
    follow,
    judge,
    parse,
    parse_comparisons,
)
from midflight.runtime.data.plan import Cursor, Plan, Seat, share

PLAN = Plan(samples=25, global_batch_size=10, epochs=2)


def worlds(*sizes: int, epochs: int = 2) -> list[Record]:
    """A run's records without trouble: step i in a world of sizes[i], the last one from then on."""
    records = []
    cursor, generation, before = Cursor(), 0, 0
    while not PLAN.complete(cursor, epochs):
        cursor = PLAN.rolled(cursor)
        size = sizes[min(cursor.step, len(sizes) - 1)]
        generation, before = generation + (size != before), size
        records += step(cursor, generation, size)
        cursor = PLAN.extent_at(cursor).after
    return records


def step(cursor: Cursor, generation: int, size: int) -> list[Record]:
    extent = PLAN.extent_at(cursor)
    place = (extent.step, extent.epoch, extent.start, extent.stop, generation)
    shares = [share(extent.start, extent.stop, rank, size) for rank in range(size)]
    return [Record(f"m{r}", *place, r, size, stop - a) for r, (a, stop) in enumerate(shares)]


def without(records: list[Record], *steps: int) -> list[Record]:
    return [record for record in records if record.step not in steps]


def figures(report: Report) -> list[tuple[int, int, int, int]]:
    return [(e.samples, e.repeated, e.missing, e.duplicated) for e in report.epochs]


def test_a_run_through_three_worlds_is_proven() -> None:
    report = judge(worlds(2, 2, 4, 4, 3))
    assert report.ok
    assert figures(report) == [(25, 0, 0, 0), (25, 0, 0, 0)]
    assert [(e.worlds, e.smallest, e.largest) for e in report.epochs] == [(2, 2, 4), (2, 3, 4)]


def test_a_lost_step_is_missing() -> None:
    report = judge(without(worlds(2), 1))
    assert not report.ok
    assert figures(report)[0] == (15, 0, 10, 0)
    assert report.problems == ("epoch 0: positions 10 to 19 were never used",)


def test_the_lost_tail_of_an_epoch_is_missing_because_the_next_one_shows_its_length() -> None:
    assert figures(judge(without(worlds(2), 2)))[0] == (20, 0, 5, 0)


def test_the_first_step_of_a_run_is_missing_too() -> None:
    assert judge(without(worlds(2), 0)).missing == 10


def test_an_epoch_without_any_record_is_missing_as_a_whole() -> None:
    assert figures(judge(without(worlds(2), 0, 1, 2))) == [(0, 0, 25, 0), (25, 0, 0, 0)]


def test_samples_that_two_steps_used_are_duplicated() -> None:
    records = worlds(2)
    again = [Record(r.member, 99, *_place(r), r.rank, r.size, r.own) for r in records[:2]]
    report = judge([*records, *again])
    assert figures(report)[0] == (25, 0, 0, 10)
    assert "epoch 0: positions 0 to 9 were used twice" in report.problems


def _place(record: Record) -> tuple[int, int, int, int]:
    return record.epoch, record.start, record.stop, record.generation + 1


def test_one_sample_too_few_in_a_share_is_missing() -> None:
    records = worlds(2)
    records[3] = replace(records[3], own=records[3].own - 1)
    report = judge(records)
    assert (report.missing, report.duplicated) == (1, 0)
    assert report.problems == ("step 1: m1, rank 1 of 2, used 4 samples; its share was 5",)


def test_the_shards_of_deterministic_mode_explain_uneven_shares() -> None:
    plan = Plan(samples=25, global_batch_size=10, shards=4)
    records = [
        replace(record, own=sum(p.stop - p.start for p in pieces))
        for record in worlds(3, epochs=1)
        for pieces in [plan.pieces(PLAN.extent_at(_cursor(record.step)), record.rank, 3)]
    ]
    assert [record.own for record in records[:3]] == [6, 2, 2]
    assert judge(records).ok
    wrong = replace(records[1], own=3)
    assert judge([records[0], wrong, *records[2:]]).missing > 0


def test_a_share_that_two_members_used_is_duplicated() -> None:
    records = worlds(2)
    again = replace(records[0], member="m7")
    report = judge([*records, again])
    assert (report.missing, report.duplicated) == (0, 5)
    assert "m0 and m7 both used the share of rank 0 of 2" in report.problems[0]


def test_a_step_that_was_done_again_counts_in_its_last_generation() -> None:
    records = worlds(3)
    alone = [r for r in records if r.step == 1 and r.rank == 0]  # it died with that step done
    later = [r for at in (1, 2, 3, 4, 5) for r in step(_cursor(at), generation=2, size=2)]
    report = judge([*[r for r in records if r.step == 0], *alone, *later])
    assert report.ok
    assert figures(report)[0] == (25, 1, 0, 0)
    assert report.vouched == 0


def _cursor(at: int) -> Cursor:
    return Cursor(at, at // 3, at % 3 * 10)


def test_members_without_a_record_are_vouched_for_by_the_others_of_the_step() -> None:
    report = judge([record for record in worlds(4) if record.rank == 2])
    assert report.ok
    assert (report.shares, report.vouched) == (24, 18)


def test_an_epoch_that_is_under_way_lacks_nothing() -> None:
    report = judge(without(worlds(2), 5))
    assert report.ok
    assert [epoch.under_way for epoch in report.epochs] == [False, True]


def test_a_known_number_of_samples_is_asked_for() -> None:
    assert judge(worlds(2), samples=25).ok
    assert judge(worlds(2), samples=30).epochs[0].missing == 5
    assert judge(worlds(2), samples=20).duplicated == 10


def test_a_resumed_run_begins_where_its_checkpoint_was() -> None:
    rest = without(worlds(2), 0, 1, 2, 3)
    assert judge(rest, resumed=True).ok
    assert judge(rest).missing == 25 + 10


def test_a_run_that_resumed_is_proven_together_with_the_one_before() -> None:
    """Which had done two steps more than its last checkpoint knew, and came back as three."""
    former = follow(None, [record for record in worlds(4, 2) if record.step < 5], frozenset())
    chain = follow(former, [record for record in worlds(3) if record.step >= 3], {3})
    report = judge(chain.records, resumed=not chain.complete)
    assert report.ok and chain.complete
    assert figures(report) == [(25, 0, 0, 0), (25, 0, 0, 0)]
    assert chain.notes == (
        "steps 3 to 4 were done twice: the run began with the former run's checkpoint of step 3",
    )


def test_a_run_that_resumed_what_nobody_has_ledgers_of_begins_there() -> None:
    rest = [record for record in worlds(3) if record.step >= 3]
    short = follow(None, [record for record in worlds(3) if record.step < 2], frozenset())
    for former in (None, short):
        chain = follow(former, rest, {3})
        assert not chain.complete and judge(chain.records, resumed=True).ok


def test_a_newcomer_that_had_read_a_checkpoint_tells_nothing() -> None:
    records = worlds(3)
    assert follow(None, records, {3}) == Chain(records)


def test_former_ledgers_are_read_as_far_back_as_each_run_resumed(tmp_path: Path) -> None:
    spans = {"": (4, 6), "former": (2, 5), "former/former": (0, 3)}
    for name, (first, end) in spans.items():
        folder = tmp_path / name
        folder.mkdir(exist_ok=True, parents=True)
        lines = [f'{{"resumed":{first}}}\n'] if first else []
        (folder / "m0.jsonl").write_text("".join([*lines, *map(_line, range(first, end))]))
    report = audit(tmp_path)
    assert report is not None and report.ok
    assert [epoch.samples for epoch in report.epochs] == [25, 25]
    assert [note.partition(" done twice")[0] for note in report.notes] == [
        "step 2 was",
        "step 4 was",
    ]


def test_members_that_speak_of_different_samples_do_not_agree() -> None:
    records = [*worlds(2), *step(Cursor(step=1, position=20), generation=1, size=2)[:1]]
    report = judge(records)
    assert not report.ok
    assert "step 1 used positions 10 to 19 of epoch 0 by m0's ledger" in report.problems[0]


def test_a_step_in_an_older_world_than_the_one_before_it_is_no_proof() -> None:
    records = [*step(_cursor(0), 2, 2), *step(_cursor(1), 1, 2), *step(_cursor(2), 2, 2)]
    assert "step 1 was done in generation 1" in judge(records).problems[0]


def test_the_line_that_is_being_written_says_nothing_yet() -> None:
    records, problems = parse("m0", _line(0) + _line(1)[:30])
    assert ([r.step for r in records], problems) == ([0], [])


@pytest.mark.parametrize("line", ["rubbish", "[]", '{"step":1}', '{"step":"1"}'])
def test_a_damaged_line_is_named(line: str) -> None:
    records, problems = parse("m0", _line(0) + line + "\n" + _line(1))
    assert (len(records), problems) == (2, ["line 2 of m0's ledger is damaged"])


def _line(at: int) -> str:
    record = step(_cursor(at), 1, 1)[0]
    fields = {name: getattr(record, name) for name in Record.__slots__ if name != "member"}
    return json.dumps({**fields, "crc": 0}) + "\n"


def test_what_the_runtime_writes_can_be_read(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from midflight.runtime.data.ledger import Ledger
    from midflight.runtime.data.sampler import ElasticBatchSampler
    from midflight.runtime.data.schedule import Schedule

    sampler = ElasticBatchSampler(PLAN, Schedule(Seat(1, 1, 2)))
    ledger = Ledger(str(tmp_path), "m1")
    for indices in sampler:
        ledger.write(sampler.issued.popleft(), len(indices), 0)
    ledger.close()
    records, problems = parse("m1", (tmp_path / "m1.jsonl").read_text())
    assert problems == []
    assert records == [record for record in worlds(2) if record.rank == 1]


def test_a_ledger_does_not_grow_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    from midflight.runtime.data import ledger as module
    from midflight.runtime.data.sampler import ElasticBatchSampler
    from midflight.runtime.data.schedule import Schedule

    monkeypatch.setattr(module, "MOST_WRITTEN", 200)
    sampler = ElasticBatchSampler(PLAN, Schedule(Seat(1, 1, 2)))
    ledger = module.Ledger(str(tmp_path), "m1")
    for indices in sampler:
        ledger.write(sampler.issued.popleft(), len(indices), 0)
    ledger.close()
    records, problems = parse("m1", (tmp_path / "m1.jsonl").read_text())
    assert 0 < len(records) < len([r for r in worlds(2) if r.rank == 1]) and problems == []
    assert capsys.readouterr().err.count("is full; the audit ends at this step") == 1


def test_steps_made_while_the_disk_was_full_are_written_when_there_is_room(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from midflight.runtime.data.ledger import Ledger
    from midflight.runtime.data.sampler import ElasticBatchSampler
    from midflight.runtime.data.schedule import Schedule

    path = tmp_path / "m1.jsonl"
    path.symlink_to("/dev/full")
    sampler = ElasticBatchSampler(PLAN, Schedule(Seat(1, 1, 2)))
    ledger = Ledger(str(tmp_path), "m1")
    for number, indices in enumerate(sampler):
        if number == 2:
            path.unlink()
        ledger.write(sampler.issued.popleft(), len(indices), 0)
    ledger.close()
    assert parse("m1", path.read_text()) == ([r for r in worlds(2) if r.rank == 1], [])


# --- members that differed ----------------------------------------------------------------------


def came(member: str, digest: str, **others: Any) -> Comparison:
    """A member that came into generation 4 after 20 steps."""
    usual = {"compared": "enter", "differed": "", "source": ""}
    return Comparison(member, generation=4, progress=(3, 20, 1), digest=digest, **usual | others)


def test_members_that_came_with_one_state_are_not_spoken_of() -> None:
    assert compare([came("m0", "a.b"), came("m1", "a.b"), came("m2", "", source="m0")]) == ([], [])


def test_a_difference_that_was_put_right_is_a_note_that_names_the_member() -> None:
    what = "optimizer.param_groups[0].lr is 0.05 here and 0.1 there"
    problems, notes = compare([came("m0", "a.b"), came("m1", "c.b", differed=what, source="m0")])
    assert problems == []
    assert notes == [
        "m1 came into generation 4 after 20 steps with another state than m0, and took that over: "
        + what
    ]


def test_different_states_that_were_kept_are_a_problem() -> None:
    problems, notes = compare([came("m0", "a.b"), came("m1", "a.c")])
    assert notes == []
    assert problems == [
        "m0 and m1 came into generation 4 after 20 steps with different states, and kept them"
    ]


def test_states_that_nobody_could_compare_are_no_problem() -> None:
    assert compare([came("m0", "0.0"), came("m1", "a.c")]) == ([], [])


def test_what_verify_every_has_found_is_a_problem() -> None:
    found = came("m1", "a.c", compared="verify", differed="the state of m1 is not that of m0")
    assert compare([found]) == (["the state of m1 is not that of m0"], [])


def test_what_the_runtime_notes_of_a_comparison_can_be_read(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from midflight.runtime.data.ledger import Ledger
    from midflight.runtime.state.claims import Claim

    ledger = Ledger(str(tmp_path), "m1")
    ledger.note("enter", 4, Claim(3, 20, 1, 10, 11), "a \u2028 b", "m0")
    ledger.close()
    text = (tmp_path / "m1.jsonl").read_text()
    assert parse("m1", text) == ([], [])
    assert parse_comparisons("m1", text + text[:20]) == [
        came("m1", "a.b", differed="a \u2028 b", source="m0")
    ]


# --- the command ------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunDir]:
    monkeypatch.setenv("MIDFLIGHT_HOME", str(tmp_path))
    folder = RunDir(tmp_path / "runs" / "demo")
    folder.create()
    folder.write_spec(spec(str(folder.ledgers)))
    yield folder


def spec(ledger: str) -> JobSpec:
    return JobSpec("demo", ("true",), np=1, min_np=1, max_np=1, ledger=ledger)


def write(run: RunDir, *steps: int) -> None:
    (run.ledgers / "m0.jsonl").write_text("".join(map(_line, steps)))


def test_a_proof_is_a_table_and_a_verdict(run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    write(run, 0, 1, 2, 3, 4, 5)
    assert main(["audit", "demo"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "EPOCH  SAMPLES  STEPS  WORLDS  MEMBERS  REPEATED  MISSING  DUPLICATED",
        "0      25       3      1       1        0         0        0",
        "1      25       3      1       1        0         0        0",
        "",
        "every sample was used exactly once: 50 samples in 6 steps",
    ]


def test_a_lost_sample_is_exit_code_1(run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    write(run, 0, 2, 3, 4, 5)
    assert main(["audit", "demo"]) == 1
    assert "NOT every sample was used exactly once: 10 missing" in capsys.readouterr().out
    assert main(["audit", "demo", "-o", "json"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert (shown["ok"], shown["epochs"][0]["missing"]) == (False, 10)


def test_a_damaged_ledger_is_exit_code_1(run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    write(run, 0, 1, 2)
    with (run.ledgers / "m0.jsonl").open("a") as file:
        file.write("rubbish\n")
    assert main(["audit", "demo"]) == 1
    assert "- line 4 of m0's ledger is damaged" in capsys.readouterr().out


def test_a_run_without_records_proves_nothing(
    run: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", "demo"]) == 1
    assert "the ledgers of demo hold no step yet" in capsys.readouterr().err


def test_a_run_that_keeps_no_ledgers_says_so(
    run: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    run.write_spec(spec(""))
    assert main(["audit", "demo"]) == 1
    said = capsys.readouterr().err
    assert "demo keeps no ledgers: --ledger-dir or MIDFLIGHT_LEDGER_DIR was none" in said


def test_ledgers_may_lie_in_a_folder_of_their_own(
    run: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = tmp_path / "shared" / "demo"
    shared.mkdir(parents=True)
    (shared / "m0.jsonl").write_text("".join(map(_line, range(6))))
    assert main(["audit", str(shared)]) == 0
    run.write_spec(spec(str(shared)))
    assert main(["audit", "demo"]) == 0
    assert capsys.readouterr().out.count("every sample was used exactly once: 50 samples") == 2
    assert main(["audit", str(tmp_path / "nowhere")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_an_unknown_run_is_named(run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "nobody"]) == 1
    assert "no run or job is named 'nobody'; known runs: demo" in capsys.readouterr().err


def test_steps_in_which_a_newcomer_had_no_share_yet_are_proven() -> None:
    ledger = (
        '{"step":0,"epoch":0,"start":0,"stop":10,"generation":2,"rank":%d,"size":3,"sharers":2,'
        '"own":%d,"crc":0}\n'
    )
    owns = {"m0": (0, 5), "m1": (1, 5), "m2": (2, 0)}
    records = [r for m, own in owns.items() for r in parse(m, ledger % own)[0]]
    assert judge(records, samples=10).ok
    greedy = [replace(record, own=3) if record.rank == 2 else record for record in records]
    assert "its share was 0" in judge(greedy, samples=10).problems[0]
