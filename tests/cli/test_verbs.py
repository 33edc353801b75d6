"""The command line by itself: which verbs there are, and what is said to a wrong one."""

import shlex
import tomllib
from pathlib import Path

import pytest

import midflight
from midflight.cli import flags
from midflight.cli.examples import EXAMPLES
from midflight.cli.main import main
from midflight.cli.verbs import VERBS, load

WITH_MORE_PARSERS = ("chaos", "operator", "submit", "top")  # another word chooses among them


def test_every_verb_can_be_asked_for_help(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in VERBS:
        with pytest.raises(SystemExit) as end:
            main([verb, "--help"])
        assert end.value.code == 0
        assert f"midflight {verb}" in capsys.readouterr().out


def code_of(arguments: list[str]) -> object:
    """However it is given: argparse exits by itself where it has printed."""
    try:
        return main(arguments)
    except SystemExit as end:
        return end.code


@pytest.mark.parametrize("arguments", [[], ["help"], ["--help"], ["-n", "lab"]])
def test_help_lists_the_verbs_and_shows_examples(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert code_of(arguments) == 0
    said = capsys.readouterr().out
    assert all(f"  {verb} " in said for verb in VERBS)
    assert "examples:\n  midflight run " in said


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_every_verb_has_examples(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["help", verb])
    assert end.value.code == 0
    assert f"examples:\n  midflight {verb}" in capsys.readouterr().out


def test_every_example_is_a_command_line_that_its_verb_can_read() -> None:
    for verb, lines in EXAMPLES.items():
        for line in lines:
            words = shlex.split(line, comments=True)
            assert words[:1] == [verb], line
            made = load(verb).parser()
            if isinstance(made, flags.VerbParser) and verb not in WITH_MORE_PARSERS:
                made.read(words[1:])


def test_help_of_what_is_no_verb_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "sumbit"]) == 2
    assert "did you mean submit?" in capsys.readouterr().err


def test_an_unknown_flag_is_answered_with_those_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["delete", "--frobnicate", "demo"]) == 2
    said = capsys.readouterr().err
    assert "unknown flag: --frobnicate; the flags of `midflight delete`: " in said
    assert all(flag in said for flag in ("--namespace", "--timeout", "--type", "--wait"))
    assert "--arena-namespace" not in said
    assert main(["run", "--frobnicate", "--", "sh"]) == 2
    said = capsys.readouterr().err
    assert "the flags of `midflight run`: " in said
    assert "--min-np" in said


@pytest.mark.parametrize("arguments", [["version"], ["--version"]])
def test_the_version_is_the_package_s(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert code_of(arguments) == 0
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert capsys.readouterr().out == f"midflight {project['version']}\n"
    assert project["version"] == midflight.__version__


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["dance"], "no verb is called 'dance'; see"),
        (["sumbit"], "no verb is called 'sumbit'; did you mean submit?"),
        (["torchrun", "train.py"], "`midflight shell -- torchrun ...` runs that command"),
        (["--loud"], "unrecognized arguments: --loud"),
        (["status", "demo", "-o", "xml"], "unknown output format"),
        (["status", "Not A Name"], "a run's name has"),
        (["resize", "demo"], "wanted either --to N"),
        (["resize", "demo", "--to", "3", "--add", "1"], "wanted either --to N"),
        (["resize", "demo", "--to", "0"], "wanted a whole number from 1"),
        (["resize", "demo", "--add", "-1"], "wanted a whole number from 1"),
        (["resize", "demo", "--to", "3", "--timeout", "inf"], "wanted a length of time"),
        (["run", "-np", "0", "sh"], "wanted a whole number from 1"),
        (["version", "now"], "unrecognized arguments: now"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_wrong_is_said_in_one_line_with_exit_code_2(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("midflight: error: ")
    assert said.err.count("\n") == 1
    assert complaint in said.err


@pytest.mark.parametrize("verb", [["status"], ["resize", "--to", "2"]])
def test_a_run_that_is_not_there_is_answered_with_those_that_are(
    verb: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MIDFLIGHT_HOME", str(tmp_path))
    assert main([*verb, "demo"]) == 1
    assert "no run or job is named 'demo'; known runs: none yet" in capsys.readouterr().err
    for name in ("one", "two"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "spec.json").touch()
    assert main([*verb, "demo"]) == 1
    assert "known runs: one, two\n" in capsys.readouterr().err


def test_a_name_that_midflight_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'fly'"):
        _ = midflight.fly
    assert {"join", "Job", "ElasticBatchSampler", "WorldChanged"} <= set(dir(midflight))


@pytest.mark.parametrize("name", ["midflight", "arena"])
def test_hints_of_all_layers_name_the_program_as_it_was_called(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", [f"/somewhere/bin/{name}"])
    monkeypatch.setenv("MIDFLIGHT_HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    (tmp_path / "context").write_text("rubbish")
    assert main(["list"]) == 2
    assert f"with `{name} context use local`" in capsys.readouterr().err
