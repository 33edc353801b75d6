"""Where the verbs go: what is said most plainly wins, and nothing goes to a cluster by surprise."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from midflight.cli import contexts
from midflight.cli.contexts import IN_CLUSTER, KUBERNETES, LOCAL, Stored
from midflight.errors import UsageError
from tests.cli.fake_server import FakeServer
from tests.cli.program import Arena, Done, run_program


def kubeconfig(folder: Path, name: str = "kubeconfig") -> str:
    content = {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [
            {"name": "lab", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
            {"name": "prod", "context": {"cluster": "c", "user": "u"}},
        ],
        "current-context": "lab",
    }
    (folder / name).write_text(json.dumps(content))
    return str(folder / name)


# --- deciding -------------------------------------------------------------------------------------


def test_this_machine_is_meant_where_nothing_is_said() -> None:
    assert contexts.choose("", None, {}).place == LOCAL


def test_the_flag_wins_over_what_was_stored_and_that_over_the_environment() -> None:
    environ = {"KUBECONFIG": "/from/environment"}
    found = contexts.choose("", None, environ)
    assert (found.place, found.config, found.why) == (
        KUBERNETES,
        "/from/environment",
        "KUBECONFIG is set",
    )
    assert contexts.choose("", Stored(LOCAL), environ).place == LOCAL
    stored = Stored(KUBERNETES, "prod", "/stored", "space")
    found = contexts.choose("", stored, environ)
    assert (found.config, found.context, found.namespace) == ("/stored", "prod", "space")
    found = contexts.choose("/flag", stored, environ)
    assert (found.config, found.context, found.namespace) == ("/flag", "", "")


def test_a_stored_context_without_a_file_is_one_of_the_environments() -> None:
    stored = Stored(KUBERNETES, "prod")
    assert contexts.choose("", stored, {"KUBECONFIG": "/e"}).config == "/e"
    assert contexts.choose("", stored, {}).config == ""
    assert contexts.choose("", Stored(IN_CLUSTER), {"KUBECONFIG": "/e"}).config == ""


def test_arenas_own_configuration_names_the_namespace(tmp_path: Path) -> None:
    (tmp_path / "arena").write_text("# mine\nnamespace = lab\nother=1\n")
    environ = {"ARENA_CONFIG": str(tmp_path / "arena"), "KUBECONFIG": "/e"}
    assert contexts.choose("", None, environ).namespace == "lab"
    assert contexts.choose("", Stored(KUBERNETES, namespace="b"), environ).namespace == "b"
    usual = tmp_path / ".arena" / "config"
    usual.parent.mkdir()
    usual.write_text("namespace=home")
    assert contexts.choose("/flag", None, {"HOME": str(tmp_path)}).namespace == "home"


# --- what is kept ---------------------------------------------------------------------------------


def test_what_was_chosen_is_kept_for_this_user_alone(tmp_path: Path) -> None:
    assert contexts.read(tmp_path) is None
    contexts.write(tmp_path / "home", Stored(KUBERNETES, "lab", "/k", "n"))
    assert contexts.read(tmp_path / "home") == Stored(KUBERNETES, "lab", "/k", "n")
    (file,) = (tmp_path / "home").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["", "[]", '{"use": "moon"}', '{"use": "local", "x": 1}'])
def test_a_file_that_says_something_else_is_not_guessed_at(tmp_path: Path, text: str) -> None:
    (tmp_path / "context").write_text(text)
    with pytest.raises(UsageError, match="say again where to work, with `midflight context use"):
        contexts.read(tmp_path)


# --- typed ----------------------------------------------------------------------------------------


def test_a_context_is_used_until_another_one_is(tmp_path: Path) -> None:
    def types(*words: str, **environment: str) -> Done:
        return run_program(tmp_path / "home", *words, HOME=str(tmp_path), **environment)

    config = kubeconfig(tmp_path)
    assert types("context").out == "Place:  local\nWhy:    nothing else was said\n"
    used = types("context", "use", "kubernetes:prod", f"--config={config}", "-n", "mine")
    assert "Context:    prod" in used.out and "Namespace:  mine" in used.out
    shown = json.loads(types("context", "-o", "json").out)
    assert shown["source"] == config and shown["place"] == KUBERNETES
    said = types("list")
    assert said.code == 1 and "https://127.0.0.1:1" in said.err
    assert types("context", "use", "local", KUBECONFIG=config).code == 0
    assert json.loads(types("context", "-o=json", KUBECONFIG=config).out)["place"] == LOCAL
    assert types("context", "list", KUBECONFIG=config).out.splitlines() == [
        "local",
        "kubernetes:lab",
        "kubernetes:prod",
    ]


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("moon", "wanted local, kubernetes, kubernetes:CONTEXT or in-cluster, got 'moon'"),
        ("local:x", "wanted local, kubernetes"),
        ("kubernetes:nope", "has no context 'nope'; there are: lab, prod"),
        ("in-cluster", "this is not a pod with a service account"),
    ],
)
def test_what_cannot_be_used_is_refused_and_nothing_changes(
    tmp_path: Path, where: str, said: str
) -> None:
    config = kubeconfig(tmp_path)
    done = run_program(tmp_path / "home", "context", "use", where, KUBECONFIG=config)
    assert done.code == 2 and said in done.err
    assert not (tmp_path / "home" / "context").exists()


def test_a_broken_choice_can_be_made_again(tmp_path: Path) -> None:
    (tmp_path / "context").write_text("rubbish")
    assert "say again where to work" in run_program(tmp_path, "list").err
    assert run_program(tmp_path, "context", "use", "local").code == 0


def test_the_namespace_is_the_contexts_where_nothing_is_said(tmp_path: Path) -> None:
    config = kubeconfig(tmp_path)
    submit = ("submit", "et", "--name=a", "--image=i", "--dry-run", "-o=json", "train")
    done = run_program(tmp_path, "--config", config, *submit)
    assert json.loads(done.out)["items"][0]["metadata"]["namespace"] == "team"
    done = run_program(tmp_path, "--config", config, "-n", "said", *submit)
    assert json.loads(done.out)["items"][0]["metadata"]["namespace"] == "said"


def test_what_is_not_about_jobs_works_whatever_kubeconfig_says(tmp_path: Path) -> None:
    done = run_program(tmp_path, "version", "--short", KUBECONFIG="/no/such/file")
    assert done.code == 0 and done.err == ""


def test_the_tests_own_environment_never_chooses_a_cluster(
    arena: Arena, fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/somebody/elses")
    assert arena("list").code == 0
    assert fake.asked("GET", "/jobs")


def test_on_this_machine_nothing_of_a_cluster_is_loaded(fake: FakeServer) -> None:
    code = "import sys; from midflight.cli.main import main; main(['list']); print(*sys.modules)"
    environ = {k: v for k, v in os.environ.items() if k != "KUBECONFIG"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env={**environ, "MIDFLIGHT_HOME": str(fake.home)},
    )
    loaded = set(done.stdout.split())
    assert "midflight.cli.verbs.list" in loaded, done.stderr
    assert not loaded & {
        "lightkube",
        "httpx2",
        "yaml",
        "midflight.kubernetes.client",
    }
