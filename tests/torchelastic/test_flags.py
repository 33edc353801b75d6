"""torchrun's command line: spellings, PET_ variables, defaults, and what is refused."""

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from midflight.compat.torchelastic.options import Options, parse
from midflight.compat.torchelastic.streams import Std
from midflight.errors import UsageError
from midflight.shims.python import sitecustomize
from midflight.store.etcd_address import Endpoint
from tests.run.site import Site
from tests.torchelastic.nodes import torchrun


def read(*words: str, **environ: str) -> Options:
    return parse([*words, "train.py"], environ)


def test_without_flags_one_worker_runs_here_alone() -> None:
    options = read()
    assert (options.min_nodes, options.max_nodes, options.nproc) == (1, 1, 1)
    assert options.command == (sys.executable, "-u", "train.py")
    assert options.rendezvous.alone
    assert options.max_restarts is None and options.spec().dialect.max_restarts == 0
    assert options.role == "default"
    assert options.rendezvous.run_id != read().rendezvous.run_id


@pytest.mark.parametrize("dash", ["-", "_"])
def test_every_flag_has_both_spellings(dash: str) -> None:
    words = (
        *("--nnodes=1:4", "--nproc-per-node=3", "--rdzv-backend=c10d", "--rdzv-id=x"),
        *("--rdzv-endpoint=host:1", "--rdzv-conf=last_call_timeout=7", "--max-restarts=5"),
        *("--monitor-interval=1", "--start-method=fork", "--role=trainer", "--log-dir=logs"),
        *("--redirects=1", "--tee=0:3,1:2", "--local-addr=10.0.0.1", "--node-rank=0"),
        *("--master-addr=a", "--master-port=1234", "--local-ranks-filter=0,2", "--no-python"),
        *("--shutdown-timeout=9", "--signals-to-handle=SIGTERM", "--virtual-local-rank"),
    )
    spelled = [word[:2] + word[2:].replace("-", dash) for word in words]
    options = parse([*spelled, "./train", "--nnodes=9"], {})
    assert (options.min_nodes, options.max_nodes, options.nproc) == (1, 4, 3)
    assert options.rendezvous.endpoints == (Endpoint("host", 1),)
    assert (options.rendezvous.backend, options.rendezvous.run_id) == ("c10d", "x")
    assert options.rendezvous.last_call == 7.0
    assert (options.max_restarts, options.role, options.local_addr) == (5, "trainer", "10.0.0.1")
    assert options.logs.folder == "logs" and options.logs.redirects is Std.OUT
    assert options.logs.tee == {0: Std.ALL, 1: Std.ERR}
    assert options.logs.shown == frozenset({0, 2})
    assert options.command == ("./train", "--nnodes=9")
    assert options.grace == 9.0 and options.signals == (signal.SIGTERM,)
    spec = options.spec()
    assert (spec.np, spec.min_np, spec.max_np) == (12, 3, 12)


def test_flags_come_from_pet_variables_and_the_command_line_wins() -> None:
    environ = {
        "PET_NNODES": "2:3",
        "PET_NPROC_PER_NODE": "4",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": "there:5",
        "PET_MAX_RESTARTS": "8",
        "PET_MODULE": "1",
        "PET_STANDALONE": "0",
    }
    options = parse(["--nproc-per-node=2", "package.train", "x"], environ)
    assert (options.min_nodes, options.max_nodes, options.nproc) == (2, 3, 2)
    assert options.max_restarts == 8
    assert options.rendezvous.endpoints == (Endpoint("there", 5),)
    assert options.command == (sys.executable, "-u", "-m", "package.train", "x")


def test_the_older_guides_words_mean_one_node_that_meets_through_etcd() -> None:
    options = read("--nnode=1", "--nproc_per_node=2", "--rdzv_endpoint=etcd-server")
    assert options.rendezvous.backend == "etcd"
    assert options.rendezvous.endpoints == (Endpoint("etcd-server", 2379),)
    assert options.rendezvous.etcd_url() == "etcd://etcd-server:2379/torchrun"
    assert (options.max_nodes, options.nproc) == (1, 2)


@pytest.mark.parametrize(
    ("words", "backend", "endpoint"),
    [
        (("--rdzv-backend=etcd-v2", "--rdzv-endpoint=e"), "etcd", "e:2379"),
        (("--rdzv-backend=etcd", "--rdzv-endpoint=[::1]:9"), "etcd", "[::1]:9"),
        (("--rdzv-endpoint=e:2379",), "etcd", "e:2379"),
        (("--rdzv-backend=c10d", "--rdzv-endpoint=h"), "c10d", "h:29400"),
        (("--rdzv-backend=midflight", "--rdzv-endpoint=h"), "c10d", "h:29400"),
        (("--nnodes=2", "--rdzv-endpoint=h:7"), "static", "h:7"),
        (("--nnodes=2", "--master-addr=m"), "static", "m:29500"),
        (("--nnodes=2", "--master-addr=m", "--master-port=8"), "static", "m:8"),
        (("--standalone", "--rdzv-backend=etcd"), "c10d", "127.0.0.1:0"),
    ],
)
def test_where_nodes_meet(words: tuple[str, ...], backend: str, endpoint: str) -> None:
    meeting = read(*words).rendezvous
    assert (meeting.backend, str(meeting.endpoints[0])) == (backend, endpoint)


@pytest.mark.parametrize(
    ("words", "port"),
    [
        (("--nnodes=2", "--master-addr=m", "--master-port=8"), 8),
        (("--nnodes=2", "--rdzv-backend=static", "--rdzv-endpoint=h:7"), 7),
        (("--master-port=9",), 9),
        (("--nnodes=1:2", "--master-port=8"), None),  # newcomers need it while workers train
        (("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=h:7"), None),
        (("--standalone",), None),
    ],
)
def test_workers_meet_at_the_port_of_a_static_rendezvous(
    words: tuple[str, ...], port: int | None
) -> None:
    assert read(*words).rendezvous.workers_port == port


def test_what_is_told_about_the_rendezvous() -> None:
    config = "is_host=true,join_timeout=30,keep_alive_interval=1,keep_alive_max_attempt=2"
    meeting = read("--rdzv-backend=c10d", f"--rdzv-conf={config}").rendezvous
    assert (meeting.is_host, meeting.join_timeout, meeting.lease) == (True, 30.0, 2.0)
    tls = "protocol=https,cacert=ca.pem,cert=c.pem,key=k.pem"
    meeting = read("--rdzv-backend=etcd", "--rdzv-endpoint=e:1", f"--rdzv-conf={tls}").rendezvous
    assert meeting.etcd_url() == "etcds://e:1/torchrun?ca=ca.pem&cert=c.pem&key=k.pem"
    assert meeting.etcd_url("me:a/b@c").startswith("etcds://me:a%2Fb%40c@e:1/torchrun?")


def test_a_number_of_workers_can_be_the_number_of_cores() -> None:
    assert read("--nproc-per-node=cpu").nproc == len(os.sched_getaffinity(0))


def test_the_rest_of_the_line_belongs_to_the_script() -> None:
    options = parse(["--standalone", "train.py", "--lr", "1", "--nnodes", "3", "-m"], {})
    assert options.command[2:] == ("train.py", "--lr", "1", "--nnodes", "3", "-m")
    assert options.max_nodes == 1


def test_flags_without_meaning_are_answered_in_one_line_each() -> None:
    options = read("--monitor-interval=5", "--start-method=fork", "--rdzv-conf=foo=1")
    assert [note.split()[0] for note in options.notes] == [
        "--rdzv-conf",
        "--monitor-interval",
        "--start-method",
    ]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--frobnicate",), "--frobnicate"),
        (("--nnodes=3:2",), "--nnodes"),
        (("--nnodes=0",), "--nnodes"),
        (("--nnodes=1:2:3",), "--nnodes"),
        (("--nproc-per-node=0",), "--nproc-per-node"),
        (("--nproc-per-node=-1",), "--nproc-per-node"),
        (("--nproc-per-node=tpu",), "--nproc-per-node"),
        (("--rdzv-backend=zookeeper",), "--rdzv-backend"),
        (("--rdzv-backend=c10d", "--rdzv-endpoint=h:x"), "--rdzv-endpoint"),
        (("--rdzv-backend=c10d", "--rdzv-endpoint=h:70000"), "--rdzv-endpoint"),
        (("--rdzv-backend=c10d", "--rdzv-endpoint=a b:1"), "--rdzv-endpoint"),
        (("--rdzv-conf=last_call_timeout",), "--rdzv-conf"),
        (("--rdzv-backend=c10d", "--rdzv-conf=last_call_timeout=soon"), "last_call_timeout"),
        (("--rdzv-backend=c10d", "--rdzv-conf=is_host=maybe"), "is_host"),
        (("--rdzv-backend=c10d", "--rdzv-conf=store_type=file"), "store_type"),
        (("--rdzv-backend=c10d", "--rdzv-id="), "--rdzv-id"),
        (("--nnodes=2", "--node-rank=2"), "--node-rank"),
        (("--max-restarts=-1",), "--max-restarts"),
        (("--start-method=thread",), "--start-method"),
        (("--redirects=4",), "--redirects"),
        (("--tee=0:9",), "--tee"),
        (("--local-ranks-filter=a",), "--local-ranks-filter"),
        (("--signals-to-handle=SIGNOTHING",), "--signals-to-handle"),
        (("--signals-to-handle=SIGKILL",), "--signals-to-handle"),
        (("--no-python", "--module"), "--no-python"),
        (("--run-path",), "--run-path"),
        (("--warm=many",), "--warm"),
    ],
)
def test_a_wrong_flag_is_refused_by_name(words: tuple[str, ...], named: str) -> None:
    with pytest.raises(UsageError, match=named) as caught:
        read(*words)
    assert "\n" not in str(caught.value)


def test_a_wrong_variable_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="PET_STANDALONE"):
        read(PET_STANDALONE="yes")


def test_a_refusal_is_one_line_and_exit_code_2(site: Site) -> None:
    node = torchrun(site, "--nnodes=0", "train.py")
    assert node.ends() == 2
    assert len(node.lines) == 1 and node.lines[0].startswith("midflight: error: --nnodes wants")
    node = torchrun(site)
    assert node.ends() == 2
    assert "training_script" in node.lines[0]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("python -m torch.distributed.run --nnodes 1 t.py", ["--nnodes", "1", "t.py"]),
        ("python -u -X dev -m torchelastic.distributed.launch t.py -m x", ["t.py", "-m", "x"]),
        ("python3 -um torch.distributed.launch t.py", ["--local-rank-argument", "t.py"]),
        (
            "python /workspace/torchelastic/distributed/launch.py --nnode=1 t.py",
            ["--nnode=1", "t.py"],
        ),
        ("python -c x/torch/distributed/run.py", None),
        ("python mytorch/distributed/run.py", None),
        ("python -m torch.distributed t.py", None),
        ("python -c pass -m torch.distributed.run", None),
        ("python t.py -m torch.distributed.run", None),
        ("python", None),
    ],
)
def test_torchs_own_launchers_are_known_by_the_command_line(
    words: str, found: list[str] | None
) -> None:
    assert sitecustomize.torchrun_words(words.split()) == found


def test_the_launchers_are_taken_over_in_a_python_without_orig_argv(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = sitecustomize.command_line()
    monkeypatch.delattr(sys, "orig_argv")
    assert sitecustomize.command_line() == words


def test_what_every_python_reads_first_can_be_read_by_an_old_one() -> None:
    read_first = ast.parse(Path(sitecustomize.__file__).read_text(), feature_version=(3, 6))
    functions = [node for node in ast.walk(read_first) if isinstance(node, ast.FunctionDef)]
    annotations = [each.returns for each in functions]
    annotations += [given.annotation for each in functions for given in each.args.args]
    assert all(isinstance(each, ast.Constant) for each in annotations), "evaluated at the start"


def test_the_launcher_before_torchrun_gives_workers_their_local_rank() -> None:
    command = parse(["--local-rank-argument", "train.py", "--lr", "0.1"], {}).command
    run = subprocess.run(
        [*command[:2], command[2].replace("exec", "echo"), *command[3:]],
        env={"LOCAL_RANK": "3"},
        capture_output=True,
        text=True,
    )
    assert run.stdout.split()[-4:] == ["train.py", "--local-rank=3", "--lr", "0.1"]
    assert parse(["--local-rank-argument", "--use_env", "train.py"], {}).command[-1] == "train.py"
