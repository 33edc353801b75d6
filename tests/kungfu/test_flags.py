"""The command line of kungfu-run, as Go programs read theirs, and schedules."""

import importlib
import os

import pytest

from midflight.compat.kungfu import cluster_manager, fake_trainer, run
from midflight.compat.kungfu.run_flags import read
from midflight.compat.kungfu.schedule import parse, step_based_schedule
from midflight.errors import UsageError
from midflight.run.options import check
from tests.coordinator.scenario import FakeCluster


def test_one_dash_or_two_a_blank_or_an_equals_sign() -> None:
    flags = read(["-np", "4", "--H=127.0.0.1:2,127.0.0.2:2", "-w=true", "-q", "python3", "-np"])
    assert (flags.np, flags.hosts, flags.watch) == (4, {"127.0.0.1": 2, "127.0.0.2": 2}, True)
    assert flags.command == ("python3", "-np")
    assert read(["-w=false", "--", "-odd"]).command == ("-odd",)


def test_hosts_may_have_a_public_address_and_workers_may_be_named_one_by_one() -> None:
    assert read(["-H", "10.0.0.1:2:node.example", "x"]).hosts == {"10.0.0.1": 2}
    named = read(["-P", "10.0.0.1:1,10.0.0.1:2,10.0.0.2:1", "x"])
    assert (named.hosts, named.np) == ({"10.0.0.1": 2, "10.0.0.2": 1}, 3)


def test_a_config_server_is_followed_wherever_one_is_given() -> None:
    flags = read(["-builtin-config-port", "9100", "x"])
    assert (flags.store, flags.watch) == ("http://127.0.0.1:9100/config", True)
    assert any("followed" in note for note in flags.notes)


def test_flags_without_a_use_here_are_named_once_each_unless_it_is_to_be_quiet() -> None:
    words = ["-strategy", "RING", "-nic", "eth0", "-auto-recover", "10s", "-elastic-mode", "reload"]
    assert [note.split()[0] for note in read([*words, "x"]).notes] == [
        "-strategy",
        "-nic",
        "-auto-recover",
        "-elastic-mode",
    ]
    assert read(["-q", *words, "x"]).notes == ()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ((), "missing program name"),
        (("-np", "2"), "missing program name"),
        (("-npp", "2", "x"), "there is no flag -npp"),
        (("-np", "two", "x"), "-np: wanted a whole number"),
        (("-np", "0", "x"), "-np: wanted a whole number"),
        (("-w=perhaps", "x"), "wanted true or false"),
        (("-strategy", "MESH", "x"), "BINARY_TREE_STAR"),
        (("-port-range", "11000-10000", "x"), "FIRST-LAST"),
        (("-elastic-mode", "magic", "x"), "delta or reload"),
        (("-H", "a b:1", "x"), "HOST:SLOTS"),
        (("-H", "127.0.0.1:1", "-P", "127.0.0.1:1", "x"), "-P names the workers"),
        (("-hostfile", "/nowhere", "x"), "cannot read the hostfile"),
        (("-init-version", "-1", "x"), "-config-server"),
        (("-config-server", "9100", "x"), "config server is named"),
        (("-H", "127.0.0.1:1", "-np", "2", "true"), "2 workers were wanted"),
        (("-H", "a:1,b:1", "-self", "b", "true"), "-self b is not the first host"),
        (("no-such-program-here",), "was not found"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(
    words: tuple[str, ...],
    line: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: str,
) -> None:
    monkeypatch.setenv("MIDFLIGHT_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert run.main(words) == 2
    said = capsys.readouterr().err
    assert line in said
    assert said.strip().count("\n") == 0


@pytest.mark.parametrize("program", [run, cluster_manager, fake_trainer])
def test_help_lists_the_flags(program: object, capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("-h", "--help"):
        with pytest.raises(SystemExit) as end:
            getattr(program, "main")([word])  # noqa: B009
        assert end.value.code == 0
    assert "Usage of kungfu-" in capsys.readouterr().out


def test_without_w_a_script_that_fails_before_it_has_joined_ends_the_run() -> None:
    flags = read(["-np", "2", "python3", "train.py"])
    spec = check(run.given(flags, 2, {"127.0.0.1": 2}, "job"), {**os.environ}).spec
    habits = {"max_restarts": spec.dialect.max_restarts, "by_rank": spec.dialect.by_rank}
    times = {"cooldown_min": spec.cooldown_min, "cooldown_max": spec.cooldown_max}
    cluster = FakeCluster({"127.0.0.1": 2}, np=2, max_np=2, order=spec.order, **habits, **times)
    cluster.uses_midflight = False
    cluster.settle()
    cluster.kill("m0", code=1, tail="ValueError: no such file\n")
    cluster.run(2.0)
    assert cluster.ended is not None and cluster.ended[0] == 1
    assert "rank 0 on 127.0.0.1: exit code 1: ValueError: no such file" in cluster.ended[1]


def test_with_w_lost_workers_are_replaced_and_workers_are_told_the_store() -> None:
    flags = read(["-w", "-config-server", "http://h:1/config", "python3", "train.py"])
    wanted = run.given(flags, 2, None, "job")
    assert (wanted.max_np, wanted.cooldown, wanted.dialect.max_restarts) == (
        None,
        (1.0, 60.0),
        None,
    )
    assert wanted.environment["KUNGFU_CONFIG_SERVER"] == "http://h:1/config"


def test_durations_are_gos() -> None:
    for text, seconds in (("1m", 60), ("1h1m1.5s", 3661.5), ("250ms", 0.25), ("0", 0)):
        assert read([f"-delay={text}", "sh"]).delay == seconds
    for text in ("", "m", "1x", "-1s", "1m-", "nan", "inf"):
        with pytest.raises(UsageError, match="-delay: wanted a length of time"):
            read([f"-delay={text}", "sh"])


def test_a_schedule_says_the_size_of_each_step_and_the_last_one_stays() -> None:
    sizes = parse("1:2,3:1, 2:2")
    assert [sizes(step) for step in range(7)] == [1, 1, 3, 2, 2, 2, 2]
    assert sizes.total == 5
    assert step_based_schedule("1:2,3:1", 2) == 3
    for text in ("", "1", "1:0", "0:5", "a:1", "1:2,,3:4", "1:-1"):
        with pytest.raises(UsageError):
            parse(text)


def test_a_name_that_is_not_there_is_named_together_with_the_page_that_lists_what_is() -> None:
    for module in (
        "",
        ".python",
        ".torch",
        ".torch.optimizers",
        ".torch.ops",
        ".tensorflow",
        ".tensorflow.ops",
    ):
        found = importlib.import_module(f"midflight.compat.kungfu{module}")
        with pytest.raises(AttributeError, match=r"no 'set_tree' here; docs/"):
            _ = found.set_tree
