"""Flags, lengths of time and types by themselves: pure, without a server."""

import json
import sys
from pathlib import Path

import pytest

from midflight import durations
from midflight.cli import common_flags, flags, job_types, messages, output
from midflight.cli import main as cli
from midflight.errors import UsageError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("1m", 60), ("1h30m", 5400), ("1.5h", 5400), ("2d", 172800), ("7", 7),
     ("500ms", 0.5), ("1m0s", 60), ("0", 0)],
)  # fmt: skip
def test_lengths_of_time_are_read(text: str, seconds: float) -> None:
    assert durations.parse(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1m", "1x", "1m 5", "inf", "nan"])
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="wanted a length of time such as 90s"):
        durations.parse(text)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-2, "<invalid>"), (-0.5, "0s"), (0, "0s"), (59.9, "59s"), (60, "1m"), (3599, "59m"),
     (3600, "1h"), (86399, "23h"), (86400, "1d"), (365 * 86400, "1y")],
)  # fmt: skip
def test_ages_are_shown_in_one_unit_rounded_down(seconds: float, shown: str) -> None:
    assert durations.shown(seconds) == shown


def test_moments_are_read_in_every_zone_and_refused_otherwise() -> None:
    assert output.epoch("1970-01-01T01:00:00+01:00") == 0.0
    assert output.epoch("1970-01-01T00:00:01Z") == 1.0
    assert output.age(None) == "N/A"
    with pytest.raises(UsageError, match="RFC 3339"):
        output.epoch("yesterday")


@pytest.mark.parametrize(
    ("text", "kind"),
    [("et", "etjob"), ("ElasticTraining", "etjob"), ("ETJOB", "etjob"), ("pytorch", "pytorchjob"),
     ("py", "pytorchjob"), ("tf", "tfjob"), ("rj", "rayjob"), ("", "")],
)  # fmt: skip
def test_types_have_three_names_in_any_case(text: str, kind: str) -> None:
    assert job_types.canonical(text) == kind


def test_an_unknown_type_is_answered_with_those_that_are() -> None:
    with pytest.raises(UsageError, match=r"unsupport job type,midflight only supports: \[tfjob, "):
        job_types.canonical("catjob")


@pytest.mark.parametrize(
    ("called", "name"),
    [("/usr/bin/arena", "arena"), ("midflight", "midflight"), ("/x/main.py", "midflight")],
)
def test_the_program_goes_by_the_name_it_was_called(
    called: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [called, "list"])
    assert messages.program() == name


def test_common_flags_are_taken_from_the_front_only() -> None:
    argv = ["--loglevel", "debug", "-n=lab", "run", "-np", "2", "--config", "x", "-n", "3"]
    common, rest = common_flags.take(argv)
    assert common == common_flags.Common(namespace="lab", loglevel="debug")
    assert rest == ["run", "-np", "2", "--config", "x", "-n", "3"]
    assert common_flags.take([]) == (common_flags.Common(), [])
    with pytest.raises(UsageError, match="flag needs an argument: --config"):
        common_flags.take(["--config"])


def verb() -> flags.VerbParser:
    parser = flags.VerbParser("test", "A parser for tests.")
    parser.add_argument("words", nargs="*")
    parser.add_argument("-o", "--output")
    parser.add_argument("-t", "--tail", type=flags.number)
    flags.switch(parser, "-A", "--all", help="all")
    flags.switch(parser, "-f", "--follow", help="follow")
    return parser


@pytest.mark.parametrize(
    ("argv", "wanted"),
    [
        (["-Af", "a"], {"all": True, "follow": True, "words": ["a"]}),
        (["-Ao", "json", "a"], {"all": True, "output": "json", "words": ["a"]}),
        (["-ojson"], {"output": "json"}),
        (["-o=json"], {"output": "json"}),
        (["a", "--all", "b", "-t", "-1", "c"], {"words": ["a", "b", "c"], "tail": -1, "all": True}),
        (["--all=false", "--follow=1"], {"all": False, "follow": True}),
        (["--all", "--no-all"], {"all": False}),
        (["-A=false"], {"all": False}),
        (["a", "--", "-x", "--", "b"], {"words": ["a"], "rest": ["-x", "--", "b"]}),
        (["--output", "--all"], {"output": "--all", "all": False}),
        (["--output="], {"output": ""}),
        (["-"], {"words": ["-"]}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_flags_are_read_as_users_of_the_original_write_them(
    argv: list[str], wanted: dict[str, object]
) -> None:
    found = vars(verb().read(argv))
    assert {name: found[name] for name in wanted} == wanted


def test_the_namespace_is_default_where_nothing_was_said() -> None:
    assert (verb().read([]).namespace, verb().read([]).said_namespace) == ("default", "")
    assert verb().read(["-n", "lab"]).said_namespace == "lab"


def test_fields_and_sections_are_aligned() -> None:
    assert output.fields({"Name": "a", "EndTime": ""}) == "Name:     a\nEndTime:"
    assert output.section("Things", ("NAME", "X"), [("long-name", 1)]) == (
        "Things:\n  NAME       X\n  ----       -\n  long-name  1"
    )


def test_events_say_who_asked_for_what(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = {"at": "T", "user": "ada", "uid": 7, "pid": 8, "what": "DELETE x", "reason": ""}
    run = said | {"at": "S", "from": "10.0.0.7", "what": "stop a", "about": "a", "outcome": "done"}
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "runs" / "a" / "audit.jsonl").write_text(f"{json.dumps(run)}\n")
    lines = [said | {"about": about, "outcome": "done"} for about in ("default/a", "lab/b", "n")]
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (tmp_path / "audit.jsonl").write_text(f'{text}{{"at": "cut o')
    (tmp_path / "torchrun.audit.jsonl").write_text(f"{json.dumps(run | {'about': 'b'})}\n")
    monkeypatch.setenv("MIDFLIGHT_HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    for words, count in ((["-A"], 5), (["-n", "lab"], 1), (["a"], 2), (["b"], 1)):
        assert cli.main(["events", "--who", "-o", "json", *words]) == 0
        assert len(json.loads(capsys.readouterr().out)) == count
    assert cli.main(["events", "--who", "a"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["AT", "USER", "PID", "FROM", "WHAT", "OUTCOME", "REASON"]
    assert rows[1] == ["S", "ada", "8", "10.0.0.7", "stop", "a", "done", "-"]
    assert rows[2] == ["T", "ada", "8", "-", "DELETE", "x", "done", "-"]
