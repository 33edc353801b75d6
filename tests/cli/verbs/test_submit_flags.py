"""Every flag of `submit`, and the place in the spec where its value ends."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from midflight.cli import submit_flags
from midflight.cli.submit_spec import Place, spec_of
from midflight.cli.verbs.submit import parser_of
from midflight.controller.spec import Kind, Spec, Sync
from midflight.errors import UsageError

HERE = Path(__file__).parent
PLACE = Place(HERE, Path("/home/someone"), {"PATH": "/bin", "TZ": "UTC", "SECRET": "x"})


def spec(kind: str, *argv: str, file: dict[str, Any] | None = None) -> Spec:
    options = parser_of(kind).read(["--name", "demo", *argv, "python train.py"])
    return spec_of(options, kind, file or {}, PLACE)


def at(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = getattr(value, name)
    return value


BOTH = [
    (["--workers=3"], "workers", 3),
    (["--gpus", "2"], "gpus", 2),
    (["--cpu=500m"], "cpu", "500m"),
    (["--memory", "4Gi"], "memory", "4Gi"),
    (["--retry=2"], "retry", 2),
    (["--shell=bash"], "shell", "bash"),
    (["-n", "lab"], "namespace", "lab"),
    (["--namespace=lab"], "namespace", "lab"),
    (["-e", "A=1", "--env=B=x=y,z", "-eC="], "env", {"A": "1", "B": "x=y,z", "C": ""}),
    (["-l", "team=a", "--label=b=c"], "labels", {"team": "a", "b": "c"}),
    (["--selector=disk=ssd"], "selectors", {"disk": "ssd"}),
    (["--working-dir", "."], "working_dir", str(HERE)),
    (["--workingDir", str(HERE.parent)], "working_dir", str(HERE.parent)),
    (["--image=some/image:1"], "container.image", "some/image:1"),
    (["--image-pull-policy=Never"], "container.image_pull_policy", "Never"),
    (["--image-pull-secret=a", "--image-pull-secret", "b"],
     "container.image_pull_secrets", ("a", "b")),
    (["--toleration", "all"], "container.tolerations", ("all",)),
    (["--device", "amd.com/gpu=1"], "container.devices", ("amd.com/gpu=1",)),
    (["-d", "claim:/data", "--data=other:/more"], "container.data", ("claim:/data", "other:/more")),
    (["--data-dir=/a:/b"], "container.data_dirs", ("/a:/b",)),
    (["--dataDir=/a"], "container.data_dirs", ("/a",)),
    (["--config-file=a:/b"], "container.config_files", ("a:/b",)),
    (["-a", "x=y", "--annotation=z=1"], "container.annotations", ("x=y", "z=1")),
    (["--scheduler=mine"], "container.scheduler", "mine"),
    (["-p", "high"], "container.priority", "high"),
    (["--priority=high"], "container.priority", "high"),
    (["--gang"], "container.gang", True),
    (["--gang=true"], "container.gang", True),
    (["--gang=false"], "container.gang", False),
    (["--queue"], "container.queue", True),
    (["--rdma"], "container.rdma", True),
    (["--hostNetwork"], "container.host_network", True),
    (["--hostIPC"], "container.host_ipc", True),
    (["--hostPID"], "container.host_pid", True),
    (["--tensorboard"], "container.tensorboard", True),
    (["--tensorboard-image=t"], "container.tensorboard_image", "t"),
    (["--tensorboardImage=t"], "container.tensorboard_image", "t"),
    (["--tensorboard-node-port"], "container.tensorboard_node_port", True),
    (["--logdir=/logs"], "container.logdir", "/logs"),
    (["--model-name=m"], "container.model_name", "m"),
    (["--model-source=s"], "container.model_source", "s"),
    (["--sync-mode=git", "--sync-source=u"], "sync", Sync("git", "u")),
    (["--syncMode=rsync", "--syncSource=h::m"], "sync", Sync("rsync", "h::m")),
    (["--sync-image=i"], "container.sync_image", "i"),
    (["--syncImage=i"], "container.sync_image", "i"),
    (["--min-workers=1"], "min_workers", 1),
    (["--max-workers=7"], "max_workers", 7),
]  # fmt: skip
ETJOB = [
    (["--spot-instance"], "spot", True),
    (["--max-wait-time=90"], "max_wait_time", 90.0),
    (["--max-wait-time=0"], "max_wait_time", None),
    (["--launcher-selector=a=b"], "container.launcher_selectors", ("a=b",)),
    (["--launcher-annotation=a=b"], "container.launcher_annotations", ("a=b",)),
    (["--worker-annotation=a=b"], "container.worker_annotations", ("a=b",)),
    (["--job-restart-policy=OnFailure"], "restart_policy", "OnFailure"),
    (["--worker-restart-policy=Never"], "worker_restart_policy", "Never"),
    (["--job-backoff-limit=2"], "backoff_limit", 2),
    (["--ssh-secret=s"], "container.ssh_secret", "s"),
    (["--run-in=workers"], "run_in", "workers"),
]
PYTORCHJOB = [
    (["--clean-task-policy=All"], "clean_policy", "All"),
    (["--running-timeout=1h30m"], "running_timeout", 5400.0),
    (["--ttl-after-finished", "90s"], "ttl_after_finished", 90.0),
    (["--share-memory=1Gi"], "container.share_memory", "1Gi"),
    (["--nproc-per-node=auto"], "nproc_per_node", "auto"),
]
CASES = [
    *(("etjob", *case) for case in BOTH + ETJOB),
    *(("pytorchjob", *case) for case in BOTH + PYTORCHJOB),
]


@pytest.mark.parametrize(
    ("kind", "argv", "path", "wanted"), CASES, ids=lambda v: " ".join(v) if type(v) is list else ""
)
def test_a_flag_ends_in_its_place(kind: str, argv: list[str], path: str, wanted: object) -> None:
    assert at(spec(kind, *argv), path) == wanted


def test_no_flag_was_forgotten_by_this_test() -> None:
    tried = {word.partition("=")[0] for _, argv, *_ in CASES for word in argv}
    tried |= {"-e", "--name"}
    missing = [flag.long for flag in submit_flags.FLAGS if not tried & {*flag.names.split()}]
    assert not missing
    assert {flag.old for flag in submit_flags.FLAGS if flag.old} <= tried


@pytest.mark.parametrize("kind", ["etjob", "pytorchjob"])
def test_what_is_not_said_is_the_spec_s_own_default(kind: str) -> None:
    made = spec(kind)
    limits = {"min_workers": 1, "max_workers": 1000} if kind == "etjob" else {}
    assert made == Spec(
        Kind(kind),
        "demo",
        "python train.py",
        working_dir=str(HERE),
        environment={"PATH": "/bin", "TZ": "UTC"},
        **limits,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("argv", "limits"),
    [
        ([], (None, None)),
        (["--min-workers=2"], (2, 1000)),
        (["--max-workers=5"], (1, 5)),
        (["--min-workers=2", "--max-workers=5"], (2, 5)),
    ],
)
def test_a_pytorchjob_is_elastic_if_limits_are_given(
    argv: list[str], limits: tuple[int | None, int | None]
) -> None:
    made = spec("pytorchjob", *argv)
    assert (made.min_workers, made.max_workers) == limits
    assert made.elastic is bool(argv)


def test_what_git_needs_leaves_the_environment() -> None:
    wishes = ("USERNAME=u", "PASSWORD=p=1", "BRANCH=main", "REV=v1")
    words = [word for wish in wishes for word in ("-e", f"GIT_SYNC_{wish}")]
    made = spec("etjob", "--sync-mode=git", "--sync-source=url", *words, "-e", "A=1")
    assert made.sync == Sync("git", "url", "main", "v1")
    assert made.secrets == {"GIT_SYNC_USERNAME": "u", "GIT_SYNC_PASSWORD": "p=1"}
    assert made.env == {"A": "1"}
    assert made.working_dir == "/home/someone"


def command(argv: Sequence[str]) -> str:
    options = parser_of("etjob").read(["--name=demo", *argv])
    return spec_of(options, "etjob", {}, PLACE).command


def test_a_command_is_joined_and_folded_and_stays_whole_after_two_dashes() -> None:
    assert command(["python", "train.py", "--gpus=1"]) == "python train.py"
    assert command(["--", "python", "train.py", "--lr", "3", "--", "x"]) == (
        "python train.py --lr 3 -- x"
    )
    assert (
        command(["horovodrun\n    -np 2\n    python train.py"])
        == "horovodrun -np 2 python train.py"
    )


@pytest.mark.parametrize(
    "words",
    [
        ["sh", "-c", "echo one; echo two"],
        ["python", "my script.py", "--lr", "$LR", "it's", ""],
        ["python", "-c", "import os\nprint(1)\n  # a comment\n-x"],
    ],
)
def test_every_word_after_two_dashes_arrives_as_it_was_typed(words: list[str]) -> None:
    assert shlex.split(command(["--", *words])) == words


def test_one_quoted_command_after_two_dashes_is_for_the_shell() -> None:
    assert command(["--", "echo $HOME;\n  echo two"]) == "echo $HOME; echo two"


def test_flags_win_over_the_file_and_the_file_over_defaults() -> None:
    file: dict[str, Any] = {
        "namespace": "lab",
        "workers": 5,
        "gpus": 2,
        "env": {"A": "1", "B": "2"},
        "container": {"image": "from/file", "gang": True},
        "environment": {"PATH": "/opt"},
    }
    made = spec("etjob", "--workers=3", "-e", "B=9", "--gang=false", file=file)
    assert (made.namespace, made.workers, made.gpus) == ("lab", 3, 2)
    assert made.env == {"A": "1", "B": "9"}
    assert (made.container.image, made.container.gang) == ("from/file", False)
    assert made.environment == {"PATH": "/opt"}
    assert spec("etjob", "-n", "default", file=file).namespace == "default"


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["-e", "A"], "argument -e/--env: wanted NAME=VALUE, got 'A'"),
        (["--label", "=x"], "wanted NAME=VALUE, got '=x'"),
        (["--workers=many"], "wanted a whole number, got 'many'"),
        (["--max-wait-time=soon"], "wanted a length of time such as 90s, 10m or 1h30m, got 'soon'"),
        (["--gang=perhaps"], "wanted true or false for --gang, got 'perhaps'"),
        (["--workerz=2"], "unknown flag: --workerz; did you mean --workers?"),
        (["--lr=2"], "unknown flag: --lr; a command with flags of its own goes in quotes"),
        (["--running-timeout=1m"], "unknown flag: --running-timeout"),
        (["--working-dir=/no/such/folder"], "--working-dir /no/such/folder: there is no such"),
        (["--sync-mode=git"], "--syncSource should be set when syncMode is set"),
        (["--sync-source=url"], "--sync-source is there without --sync-mode"),
        (["-o", "xml"], "unknown output format,only support:[wide|json|yaml|name]"),
        (["--loglevel=loud"], "Unknown level: loud; wanted one of debug, info, warn, error"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_wrong_with_a_flag_is_said(argv: list[str], complaint: str) -> None:
    with pytest.raises(UsageError) as error:
        spec("etjob", *argv)
    assert complaint in str(error.value)


def test_a_flag_at_the_end_needs_its_value() -> None:
    with pytest.raises(UsageError, match="flag needs an argument: --gpus"):
        parser_of("etjob").read(["--gpus"])


def test_a_flag_of_the_other_kind_is_named_when_the_kind_is_in_the_file() -> None:
    options = parser_of("").read(["--name=demo", "--running-timeout=1m", "sh"])
    with pytest.raises(UsageError, match="--running-timeout is for a pytorchjob, and this is a"):
        spec_of(options, "etjob", {}, PLACE)


def test_retries_of_an_etjob_start_the_whole_job_again() -> None:
    made = spec("etjob", "--retry=3")
    assert (made.retry, made.restart_policy, made.backoff_limit) == (3, "OnFailure", 3)
    made = spec("etjob", "--retry=3", "--job-restart-policy=Never")
    assert made.restart_policy == "Never"
    assert spec("etjob", "--retry=0").restart_policy == "Never"
    assert spec("pytorchjob", "--retry=3").restart_policy == "Never"


@pytest.mark.parametrize(
    ("source", "kept", "secrets"),
    [
        ("https://me:p%40ss@host.example:8443/a/b.git", "https://host.example:8443/a/b.git",
         ("me", "p@ss")),
        ("http://me:a@b@host.example/b", "http://host.example/b", ("me", "a@b")),
        ("https://me@host.example/b.git", "https://me@host.example/b.git", None),
        ("https://host.example/a:b@c", "https://host.example/a:b@c", None),
        ("git@host.example:a/b.git", "git@host.example:a/b.git", None),
        ("/srv/git/b.git", "/srv/git/b.git", None),
    ],
)  # fmt: skip
def test_a_user_and_password_inside_the_source_become_secrets(
    source: str, kept: str, secrets: tuple[str, str] | None
) -> None:
    made = spec("etjob", "--sync-mode=git", f"--sync-source={source}")
    assert made.sync == Sync("git", kept)
    names = ("GIT_SYNC_USERNAME", "GIT_SYNC_PASSWORD")
    assert made.secrets == (dict(zip(names, secrets, strict=True)) if secrets else {})


def test_a_password_that_was_given_apart_wins_over_the_one_in_the_source() -> None:
    source = "--sync-source=https://me:old@host.example/b"
    made = spec("etjob", "--sync-mode=git", source, "-e", "GIT_SYNC_PASSWORD=new")
    assert made.secrets == {"GIT_SYNC_USERNAME": "me", "GIT_SYNC_PASSWORD": "new"}
