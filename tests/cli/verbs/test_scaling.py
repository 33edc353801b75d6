"""`scaleout`, `scalein` and `resize` of a job: what is asked for, and what is said of it."""

import pytest

from tests.cli import canned
from tests.cli.fake_server import FakeServer
from tests.cli.program import Arena

pytestmark = pytest.mark.slow
SCALE = "/jobs/default/demo/scale"
OUT = ("scaleout", "etjob", "--name=demo")


@pytest.fixture(autouse=True)
def demo(fake: FakeServer) -> None:
    fake.jobs = [canned.job()]


@pytest.mark.parametrize("kind", ["scaleout", "scalein"])
def test_a_scale_operation_is_answered_as_in_the_guide(
    kind: str, fake: FakeServer, arena: Arena
) -> None:
    fake.operations = [canned.operation(kind=kind)]
    done = arena(kind, "et", "--name=demo", "--count=1", "--timeout=1m")
    assert done.code == 0
    assert done.out == f"{kind}.kai.alibabacloud.com/demo-1599557124 created\n"
    assert done.err == (
        f"INFO[0000] The {kind} job demo-1599557124 has been submitted successfully\n"
    )
    assert fake.asked("POST", SCALE)[0].body == {
        "kind": kind,
        "count": 1,
        "timeout": 60.0,
        "names": [],
        "partial": False,
    }


@pytest.mark.parametrize(
    ("argv", "wish"),
    [
        (["--count=2", "-t", "10m", "--partial"], (2, 600.0, [], True)),
        (["--pod-names=demo-worker-1,demo-worker-0"],
         (2, 60.0, ["demo-worker-1", "demo-worker-0"], False)),
        (["--pod-names=demo-worker-1", "--pod-names", "demo-worker-1"],
         (1, 60.0, ["demo-worker-1"], False)),
    ],
)  # fmt: skip
def test_what_was_asked_for_is_what_the_server_hears(
    argv: list[str], wish: tuple[object, ...], fake: FakeServer, arena: Arena
) -> None:
    fake.operations = [canned.operation(kind="scalein")]
    assert arena("scalein", "etjob", "--name=demo", *argv).code == 0
    body = fake.asked("POST", SCALE)[0].body
    assert (body["count"], body["timeout"], body["names"], body["partial"]) == wish


def test_a_count_below_one_is_not_even_sent(fake: FakeServer, arena: Arena) -> None:
    done = arena(*OUT, "--count=0")
    assert done.code == 2
    assert done.err == "midflight: error: --count is invalid: wanted at least 1, got 0\n"
    assert not fake.asked("POST", SCALE)


def test_flags_without_a_meaning_are_noted_once(fake: FakeServer, arena: Arena) -> None:
    fake.operations = [canned.operation()]
    done = arena(*OUT, "--script=x.sh", "-e", "A=1", "--retry=3")
    assert "INFO[0000] --script, --env, --retry: not needed here" in done.err
    assert "script" not in fake.asked("POST", SCALE)[0].body


def test_whoever_waits_hears_what_became_of_it(fake: FakeServer, arena: Arena) -> None:
    done_at_last = canned.operation(progress="succeeded", message="trains with 4 now", changes=3)
    fake.operations = [canned.operation(), canned.operation(changes=2), done_at_last]
    done = arena(*OUT, "--wait")
    assert done.code == 0
    assert done.out == (
        "scaleout.kai.alibabacloud.com/demo-1599557124 created\ntrains with 4 now\n"
    )
    follows = fake.asked("GET", "/jobs/default/demo/operations/demo-1599557124")
    assert [request.query["after"] for request in follows] == ["1", "2"]


def test_a_server_that_goes_away_meanwhile_is_asked_again(fake: FakeServer, arena: Arena) -> None:
    fake.operations = [canned.operation(), canned.operation(progress="succeeded", message="done")]
    fake.hiccups = 1
    done = arena(*OUT, "--wait")
    assert (done.code, done.out.split("\n")[1]) == (0, "done"), done.err


@pytest.mark.parametrize("verb", [OUT, ("resize", "demo", "--to=4")])
def test_a_change_that_training_did_not_take_is_an_error(
    verb: tuple[str, ...], fake: FakeServer, arena: Arena
) -> None:
    text = "taken back after 60 s: no room for 1 worker"
    fake.operations = [canned.operation(), canned.operation(progress="failed", message=text)]
    done = arena(*verb, "--wait")
    assert done.code == 1
    assert done.err.endswith(f"midflight: error: {text}\n")


def test_a_resize_asks_for_a_size_and_waits_by_default(fake: FakeServer, arena: Arena) -> None:
    ended = canned.operation(progress="succeeded")
    fake.operations = [canned.operation(), ended, canned.operation()]
    assert arena("resize", "demo", "--to", "4").out.endswith("demo has 4 workers now\n")
    assert fake.asked("POST", SCALE)[0].body == {"to": 4, "timeout": 60.0, "partial": False}
    assert arena("resize", "demo", "--to=4", "--no-wait").code == 0
    assert "wanted either --to N" in arena("resize", "demo").err


def test_the_server_s_objections_are_passed_on(fake: FakeServer, arena: Arena) -> None:
    text = "the number of scaling out plus the number of current workers exceeds the max-workers."
    fake.refuse("POST", SCALE, "refused", text)
    done = arena(*OUT)
    assert (done.code, done.out, done.err) == (1, "", f"midflight: error: {text}\n")


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["scaleout", "etjob"], 'required flag(s) "name" not set'),
        (["scaleout", "pytorch", "--name=x"], "scaleout is for an etjob (et), got 'pytorch'"),
        (["scaleout", "--name=x"], "required: etjob"),
        ([*OUT, "--timeout=soon"], "wanted a length of time"),
        ([*OUT, "--pod-names=a"], "unknown flag: --pod-names"),
        (["scalein", "et", "--name=x", "--pod-names=a,,b"], "wanted --pod-names NAME,NAME"),
    ],
)
def test_what_is_wrong_is_said(argv: list[str], complaint: str, arena: Arena) -> None:
    done = arena(*argv)
    assert done.code == 2
    assert complaint in done.err


def test_the_operation_can_be_had_for_machines(fake: FakeServer, arena: Arena) -> None:
    fake.operations = [canned.operation(), canned.operation(), canned.operation(
        progress="succeeded", message="done")]  # fmt: skip
    assert arena(*OUT, "-o", "name").out == "demo-1599557124\n"
    assert '"progress": "succeeded"' in arena(*OUT, "-o=json", "--wait").out
