"""The scripts that fetch a job's code, run as a pod would run them, with the real git."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from midflight.kubernetes.names import NO_SUCH_COMMIT
from midflight.kubernetes.pods import PodDefaults
from midflight.kubernetes.pods.code import code_pod
from midflight.kubernetes.pods.pod import render
from tests.kubernetes.job_objects import Json, chief_of, job_of, pod_spec, pytorch_job, training_job

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
CODE, COMMIT, HOME = "MIDFLIGHT_CODE", "MIDFLIGHT_COMMIT_FILE", "HOME"


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    done = subprocess.run(
        ["git", *who, "-C", str(folder), *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two commits on main, one on dev, a tag; at a path that a shell would stumble over."""
    folder = tmp_path / 'it\'s; $(touch oops) "x"' / "mnist.git"
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    for name in ("first", "second"):
        (folder / "train.py").write_text(name)
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "-m", name)
    git(folder, "tag", "-a", "v1", "-m", "one", "HEAD~1")
    git(folder, "checkout", "--quiet", "-b", "dev")
    (folder / "train.py").write_text("dev")
    git(folder, "commit", "--quiet", "-am", "dev")
    git(folder, "checkout", "--quiet", "main")
    return folder


def job_object(source: Path | str, **sync: str) -> Json:
    return training_job(sync={"mode": "git", "source": str(source), **sync})


def run(container: Json, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """As a kubelet does, with the container's places in `folder`."""
    said = {each["name"]: each.get("value", "") for each in container["env"]}
    environ = {name: value.replace("$$", "$") for name, value in said.items()}
    environ |= {CODE: str(folder / "code"), COMMIT: str(folder / "commit"), HOME: str(folder)}
    environ |= {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", **more}
    (folder / "code").mkdir(exist_ok=True)
    words = container["command"]
    assert "$(" not in words[-1]
    assert "$$" not in words[-1]
    return subprocess.run(words, env=environ, cwd=folder, capture_output=True, text=True)


def resolve(obj: Json, folder: Path) -> str:
    done = run(code_pod(obj, job_of(obj), PodDefaults())["spec"]["containers"][0], folder)
    assert done.returncode == 0, done.stderr
    return (folder / "commit").read_text()


def fetch(obj: Json, commit: str, folder: Path, **more: str) -> str:
    job = job_of(obj, commit)
    pod = render(obj, job, chief_of(job), PodDefaults())
    done = run(pod["spec"]["initContainers"][0], folder, **more)
    assert done.returncode == 0, done.stderr
    return (folder / "code" / "mnist" / "train.py").read_text()


@pytest.mark.parametrize(
    ("sync", "name"),
    [
        ({}, "main"),
        ({"branch": "dev"}, "dev"),
        ({"branch": "v1"}, "v1^{commit}"),
        ({"branch": "dev", "revision": "v1"}, "v1^{commit}"),
    ],
)
def test_the_commit_is_that_of_the_branch_tag_or_revision(
    source: Path, tmp_path: Path, sync: dict[str, str], name: str
) -> None:
    assert resolve(job_object(source, **sync), tmp_path) == git(source, "rev-parse", name)
    assert not (tmp_path / "oops").exists()


def test_the_beginning_of_a_commit_is_enough(source: Path, tmp_path: Path) -> None:
    whole = git(source, "rev-parse", "main~1")
    assert resolve(job_object(source, revision=whole[:9]), tmp_path) == whole
    assert resolve(job_object(source, revision=whole), tmp_path) == whole


def test_what_is_not_there_is_said_in_one_line(source: Path, tmp_path: Path) -> None:
    obj = job_object(source, branch="none")
    pod = code_pod(obj, job_of(obj), PodDefaults())
    done = run(pod["spec"]["containers"][0], tmp_path)
    assert done.returncode == NO_SUCH_COMMIT
    assert done.stderr.splitlines()[-1].endswith("has no branch, tag or commit none")
    assert pod["spec"]["containers"][0]["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_every_pod_gets_the_commit_that_was_resolved(source: Path, tmp_path: Path) -> None:
    obj = job_object(source)
    commit = resolve(obj, tmp_path)
    (source / "train.py").write_text("third")
    git(source, "commit", "--quiet", "-am", "third")
    assert fetch(obj, commit, tmp_path) == "second"
    assert fetch(obj, commit, tmp_path) == "second"  # a container that starts again
    assert git(tmp_path / "code" / "mnist", "rev-parse", "HEAD") == commit


def test_a_depth_that_the_user_gives_is_kept_to(source: Path, tmp_path: Path) -> None:
    obj = job_object(f"file://{source}")
    launcher = pod_spec(obj, "launcher")["containers"][0]
    launcher["env"].append({"name": "GIT_SYNC_DEPTH", "value": "1"})
    assert fetch(obj, git(source, "rev-parse", "dev"), tmp_path) == "dev"
    assert git(tmp_path / "code" / "mnist", "rev-list", "--count", "HEAD") == "1"


def test_without_a_commit_a_branch_is_fetched_as_it_is_now(source: Path, tmp_path: Path) -> None:
    assert fetch(job_object(source, branch="dev"), "", tmp_path) == "dev"


def test_a_password_is_given_to_the_sources_own_host_only(tmp_path: Path) -> None:
    """A stand-in for git asks the program that git would ask."""
    asking = tmp_path / "bin" / "git"
    asking.parent.mkdir()
    asking.write_text(
        "#!/bin/sh\n"
        '"$GIT_ASKPASS" "Username for \'https://git.example:8443\': "\n'
        '"$GIT_ASKPASS" "Password for \'https://me@git.example:8443\': "\n'
        '"$GIT_ASKPASS" "Password for \'https://evil.example\': " || echo nothing\n'
    )
    asking.chmod(0o755)
    obj = job_object("https://git.example:8443/a/mnist.git")
    container = code_pod(obj, job_of(obj), PodDefaults())["spec"]["containers"][0]
    login = {"GIT_SYNC_USERNAME": "me", "GIT_SYNC_PASSWORD": "hu$h"}
    run(container, tmp_path, PATH=f"{asking.parent}:{os.environ['PATH']}", **login)
    assert (tmp_path / "refs").read_text().split() == ["me", "hu$h", "nothing"]


def test_a_password_stands_in_a_secret_and_never_in_words() -> None:
    obj = pytorch_job()
    obj["metadata"]["annotations"]["midflight.dev/sync"] = (
        '{"mode": "git", "source": "https://me:hush@git.example/a/b.git", "image": "mine/git:2"}'
    )
    container = code_pod(obj, job_of(obj), PodDefaults())["spec"]["containers"][0]
    env = {each["name"]: each for each in container["env"]}
    assert env["MIDFLIGHT_SOURCE"]["value"] == "https://git.example/a/b.git"
    assert env["GIT_SYNC_PASSWORD"]["value"] == "hush"  # where its author has put it
    assert "hush" not in str(container["command"])
    assert container["image"] == "mine/git:2"
    obj = job_object("https://git.example/a/b.git")
    env = {
        each["name"]: each
        for each in code_pod(obj, job_of(obj), PodDefaults())["spec"]["containers"][0]["env"]
    }
    secret = env["GIT_SYNC_PASSWORD"]["valueFrom"]["secretKeyRef"]
    assert secret == {"name": "elastic-git", "key": "password", "optional": True}


@pytest.mark.skipif(shutil.which("rsync") is None, reason="there is no rsync")
def test_rsync_brings_a_folder_and_has_no_commit(tmp_path: Path) -> None:
    folder = tmp_path / "a b" / "project"
    folder.mkdir(parents=True)
    (folder / "train.py").write_text("here")
    obj = training_job(sync={"mode": "rsync", "source": str(folder)})
    job = job_of(obj)
    look = run(code_pod(obj, job, PodDefaults())["spec"]["containers"][0], tmp_path)
    assert (look.returncode, look.stdout) == (0, "")
    pod = render(obj, job, chief_of(job), PodDefaults())
    assert run(pod["spec"]["initContainers"][0], tmp_path).returncode == 0
    assert (tmp_path / "code" / "project" / "train.py").read_text() == "here"


def stand_ins(folder: Path, name: str, script: str, **more: str) -> str:
    """A PATH with a program of this name that runs `script` before the real one, and no pauses."""
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    texts = {name: f'{script}\nexec {shutil.which(name)} "$@"', "sleep": "exit 0", **more}
    for each, text in texts.items():
        (bin_folder / each).write_text(f"#!/bin/sh\n{text}\n")
        (bin_folder / each).chmod(0o755)
    return f"{bin_folder}:{os.environ['PATH']}"


def fails(times: int, words: str = "*") -> str:
    """Said of each try that has these words; as git ends where no host answers."""
    asked = f'echo x >> "$HOME/asked"; [ "$(wc -l < "$HOME/asked")" -gt {times} ] || exit 128'
    return f'case "$*" in {words}) {asked} ;; esac'


def test_a_source_that_does_not_answer_for_a_moment_is_asked_again(
    source: Path, tmp_path: Path
) -> None:
    """The job failed at the first time."""
    path = stand_ins(tmp_path, "git", fails(2, "*ls-remote*"))
    obj = job_object(source)
    pod = code_pod(obj, job_of(obj), PodDefaults())
    done = run(pod["spec"]["containers"][0], tmp_path, PATH=path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "commit").read_text() == git(source, "rev-parse", "main")
    assert done.stderr.count("trying again") == 2


def test_the_pods_of_a_job_ask_a_source_that_is_away_for_ten_minutes(
    source: Path, tmp_path: Path
) -> None:
    """They failed after ten seconds, and a launcher's failure is its job's."""
    commit = git(source, "rev-parse", "main")
    path = stand_ins(tmp_path, "git", fails(30, "*fetch*"))
    assert fetch(job_object(source), commit, tmp_path, PATH=path) == "second"


@pytest.mark.parametrize("mode", ["git", "rsync"])
def test_a_source_that_stays_away_is_given_up_after_ten_minutes(mode: str, tmp_path: Path) -> None:
    clock = 'echo x >> "$HOME/minutes"; expr 60 "*" "`wc -l < "$HOME/minutes"`"'
    path = stand_ins(tmp_path, "git", fails(99, "*fetch*"), date=clock, rsync="exit 12")
    obj = training_job(sync={"mode": mode, "source": "git.example:/a/mnist.git"})
    job = job_of(obj, "0" * 40 if mode == "git" else "")
    pod = render(obj, job, chief_of(job), PodDefaults())
    done = run(pod["spec"]["initContainers"][0], tmp_path, PATH=path)
    assert done.returncode == {"git": 128, "rsync": 12}[mode]
    assert done.stderr.count("trying again") == 9  # and then ten minutes are over


def test_a_commit_that_is_nowhere_is_not_waited_for(source: Path, tmp_path: Path) -> None:
    obj = job_object(source, revision="0" * 40)
    pod = render(obj, job_of(obj, "0" * 40), chief_of(job_of(obj)), PodDefaults())
    done = run(pod["spec"]["initContainers"][0], tmp_path)
    assert done.returncode == NO_SUCH_COMMIT
    assert done.stderr.endswith(f"has no branch, tag or commit {'0' * 40}\n")
    assert "trying again" not in done.stderr


@pytest.mark.parametrize("revision", ["0" * 40, "v1"])
def test_the_first_pod_asks_for_a_whole_commit_too(revision: str, tmp_path: Path) -> None:
    """Nobody asked: each pod of the job failed by itself."""
    obj = job_object(tmp_path / "away", revision=revision)
    path = stand_ins(tmp_path, "git", "", date='cat "$HOME/now"; echo 99 > "$HOME/now"')
    (tmp_path / "now").write_text("1")
    pod = code_pod(obj, job_of(obj), PodDefaults())
    assert run(pod["spec"]["containers"][0], tmp_path, PATH=path).returncode == 128
