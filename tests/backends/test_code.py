"""Fetching code with real git and rsync, from repositories made here, and where it shows up."""

import asyncio
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from midflight.backends.local.code import Source, environment_of, fetch, source_of
from midflight.backends.local.code_link import Neighbour, link, unlink
from midflight.backends.local.folder import JobFolder
from midflight.controller.spec import Kind, Spec, Sync
from midflight.errors import JobFailed
from tests.backends.repositories import PasswordServer, Repository, environment

pytestmark = pytest.mark.slow
WITHOUT_RSYNC = pytest.mark.skipif(not shutil.which("rsync"), reason="rsync is not installed")
USER, PASSWORD = "reader", "s3cret-word"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "sources" / "mnist-pytorch.git")
    made.commit("first")
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return new_folder(tmp_path, "default/demo")


@pytest.fixture
def server(tmp_path: Path, repository: Repository) -> Iterator[PasswordServer]:
    repository.export()
    made = PasswordServer(tmp_path / "sources", USER, PASSWORD)
    yield made
    made.close()


def new_folder(home: Path, key: str) -> Path:
    made = JobFolder.of(home, key)
    made.create("python3")
    return made.path


def get(source: Source, folder: Path, seconds: float = 60.0, **environ: str) -> str:
    return asyncio.run(fetch(source, folder, environment(**environ), seconds))


def text(folder: Path, file: str = "train.py") -> str:
    return (folder / "code" / "mnist-pytorch" / file).read_text()


# --- git ----------------------------------------------------------------------------------------


def test_the_default_branch_is_cloned_and_its_commit_is_told(
    repository: Repository, folder: Path
) -> None:
    commit = get(Source("git", repository.url), folder)
    assert commit == repository.head()
    assert text(folder) == "first"


def test_a_branch_a_tag_or_a_commit_is_honoured(repository: Repository, tmp_path: Path) -> None:
    first = repository.head()
    repository.tag("v1")
    repository.branch("dev")
    dev = repository.commit("on dev")
    repository.to("main")
    main = repository.commit("second")

    def fetched(name: str, branch: str = "", revision: str = "") -> str:
        place = new_folder(tmp_path, f"default/{name}")
        return get(Source("git", repository.url, branch, revision), place)

    assert fetched("a", branch="dev") == dev
    assert fetched("b", branch="dev", revision="HEAD") == dev
    assert fetched("c", revision="dev") == dev
    assert fetched("d", revision="v1") == first
    assert fetched("e", revision=first[:12]) == first
    assert fetched("f") == main


def test_a_commit_that_was_resolved_before_is_fetched_again_as_it_was(
    repository: Repository, tmp_path: Path, folder: Path
) -> None:
    first = get(Source("git", repository.url), folder)
    repository.commit("second")
    later = new_folder(tmp_path, "default/later")
    assert get(Source("git", repository.url, commit=first), later) == first
    assert text(later) == "first"


def test_a_commit_that_no_branch_leads_to_any_more_is_still_found(
    repository: Repository, folder: Path
) -> None:
    first = repository.head()
    second = repository.commit("second")
    repository.reset(first)
    assert get(Source("git", repository.url, commit=second), folder) == second
    assert text(folder) == "second"


def test_a_second_fetch_changes_nothing(repository: Repository, folder: Path) -> None:
    source = Source("git", repository.url)
    first = get(source, folder)
    repository.commit("second")
    (folder / "code/mnist-pytorch/result").write_text("of the job")
    assert get(source, folder) == first
    assert text(folder, "result") == "of the job"


def test_a_clone_that_was_cut_off_begins_anew(repository: Repository, folder: Path) -> None:
    part = folder / "code" / "mnist-pytorch"
    (part / ".git").mkdir(parents=True)
    (part / "half").write_text("")
    assert get(Source("git", repository.url), folder) == repository.head()
    assert not (part / "half").exists()


def test_a_source_that_does_not_exist_is_said_in_one_line(tmp_path: Path, folder: Path) -> None:
    complaint = r"git could not fetch file://.*not appear to be a git"
    with pytest.raises(JobFailed, match=complaint) as caught:
        get(Source("git", f"file://{tmp_path}/nothing.git"), folder)
    assert "\n" not in str(caught.value)
    assert not (folder / "code.json").exists()


def test_a_branch_or_revision_that_does_not_exist_is_named(
    repository: Repository, folder: Path
) -> None:
    with pytest.raises(JobFailed, match="nowhere"):
        get(Source("git", repository.url, branch="nowhere"), folder)
    with pytest.raises(JobFailed, match="nowhere"):
        get(Source("git", repository.url, revision="nowhere"), folder)
    with pytest.raises(JobFailed, match="--upload-pack"):
        get(Source("git", repository.url, revision="--upload-pack=touch /tmp/x"), folder)


@pytest.mark.parametrize("url", ["file:///", "https://host/..", "/tmp/.git", "-x/"])
def test_a_source_without_a_name_is_refused(url: str, folder: Path) -> None:
    with pytest.raises(JobFailed):
        get(Source("git", url), folder)


def test_a_program_that_is_missing_is_named(repository: Repository, folder: Path) -> None:
    for mode in ("git", "rsync"):
        with pytest.raises(JobFailed, match=f"needs {mode}, which was not found"):
            get(Source(mode, repository.url), folder, PATH="/nonexistent")


def test_a_fetch_that_takes_too_long_is_killed_with_all_it_started(
    tmp_path: Path, folder: Path
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    noted = tmp_path / "pid"
    git = programs / "git"
    git.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {noted}\nwait\n")
    git.chmod(0o755)
    source = Source("git", "https://example.org/mnist-pytorch.git")
    with pytest.raises(JobFailed, match="was not fetched within 1 s"):
        get(source, folder, seconds=1.0, PATH=f"{programs}:{os.environ['PATH']}")
    deadline = time.monotonic() + 10
    while _alive(int(noted.read_text())) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _alive(int(noted.read_text()))


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# --- passwords ----------------------------------------------------------------------------------


def test_a_source_that_asks_for_a_password_says_what_to_give(
    server: PasswordServer, folder: Path
) -> None:
    began = time.monotonic()
    with pytest.raises(JobFailed, match=r"asks for a user and a password.*GIT_SYNC_USERNAME"):
        get(Source("git", f"http://{server.host}/mnist-pytorch.git"), folder)
    assert server.asked
    assert time.monotonic() - began < 30


def test_a_wrong_password_is_said_but_not_shown(server: PasswordServer, folder: Path) -> None:
    url = f"http://{server.host}/mnist-pytorch.git"
    with pytest.raises(JobFailed, match=r"Authentication failed.*check GIT_SYNC") as caught:
        get(Source("git", url, username=USER, password="not-this-one"), folder)
    assert "not-this-one" not in str(caught.value)


def test_the_right_password_is_used_and_left_nowhere(
    server: PasswordServer, repository: Repository, folder: Path, tmp_path: Path
) -> None:
    calls = tmp_path / "calls"
    programs = _git_that_notes_its_words(tmp_path, calls)
    source = Source(
        "git", f"http://{server.host}/mnist-pytorch.git", username=USER, password=PASSWORD
    )
    place = folder / "code"
    commit = get(source, folder, PATH=f"{programs}:{os.environ['PATH']}")
    assert commit == repository.head()
    assert "clone" in calls.read_text()
    assert PASSWORD not in calls.read_text()
    kept = [path for path in (*place.rglob("*"), *folder.glob("*")) if path.is_file()]
    assert kept
    assert not [path for path in kept if PASSWORD.encode() in path.read_bytes()]
    assert stat.S_IMODE((folder / ".askpass").stat().st_mode) == 0o700


def test_the_password_is_not_told_to_another_host(folder: Path, server: PasswordServer) -> None:
    with pytest.raises(JobFailed):
        get(Source("git", "file:///nothing/here.git", username=USER, password=PASSWORD), folder)
    values = {
        "MIDFLIGHT_GIT_HOST": "code.example.org",
        "MIDFLIGHT_GIT_USERNAME": USER,
        "MIDFLIGHT_GIT_PASSWORD": PASSWORD,
    }

    def answer(prompt: str) -> str:
        words = [str(folder / ".askpass"), prompt]
        return subprocess.run(words, env=values, capture_output=True, text=True).stdout

    assert answer("Username for 'https://code.example.org': ") == f"{USER}\n"
    assert answer(f"Password for 'https://{USER}@code.example.org': ") == f"{PASSWORD}\n"
    assert answer("Password for 'https://code.example.org.evil.net': ") == ""
    assert answer("Username for 'https://evil.net': ") == ""


def test_user_and_password_come_from_the_secrets_or_out_of_the_url() -> None:
    sync = Sync("git", "https://me:word@example.org/a/repo.git", "dev", "v1")
    spec = Spec(Kind.ETJOB, "demo", "true", sync=sync)
    found = source_of(spec, "abc")
    assert (found.url, found.repository) == ("https://example.org/a/repo.git", "repo")
    assert (found.username, found.password) == ("me", "word")
    assert (found.branch, found.revision, found.commit) == ("dev", "v1", "abc")
    assert "word" not in repr(found)
    given = {"GIT_SYNC_USERNAME": "other", "GIT_SYNC_PASSWORD": "pass"}
    other = source_of(Spec(Kind.ETJOB, "demo", "true", sync=sync, secrets=given))
    assert (other.username, other.password) == ("other", "pass")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://example.org/x/mnist-pytorch.git", "mnist-pytorch"),
        ("git@example.org:group/repo.git", "repo"),
        ("git@example.org:repo", "repo"),
        ("/srv/code/thing/", "thing"),
    ],
)
def test_the_folder_is_named_like_the_repository(url: str, name: str) -> None:
    assert Source("git", url).repository == name


def test_programs_get_the_users_environment_without_secrets() -> None:
    spec = Spec(
        Kind.ETJOB,
        "demo",
        "true",
        env={"https_proxy": "http://proxy", "GIT_SYNC_PASSWORD": "hidden"},
        environment={"PATH": "/mine"},
    )
    found = environment_of(spec, {"PATH": "/theirs", "HOME": "/h"})
    assert found == {"PATH": "/mine", "HOME": "/h", "https_proxy": "http://proxy"}


def _git_that_notes_its_words(tmp_path: Path, calls: Path) -> Path:
    programs = tmp_path / "programs"
    programs.mkdir()
    git = programs / "git"
    git.write_text(f'#!/bin/sh\necho "$@" >> {calls}\nexec {shutil.which("git")} "$@"\n')
    git.chmod(0o755)
    return programs


# --- rsync --------------------------------------------------------------------------------------


@WITHOUT_RSYNC
def test_rsync_brings_a_folder_or_what_is_in_it(tmp_path: Path) -> None:
    source = tmp_path / "project"
    source.mkdir()
    (source / "train.py").write_text("first")
    whole, inside = (new_folder(tmp_path, f"default/{name}") for name in ("whole", "inside"))
    assert get(Source("rsync", str(source)), whole) == ""
    assert (whole / "code/project/train.py").read_text() == "first"
    get(Source("rsync", f"{source}/"), inside)
    assert (inside / "code/train.py").read_text() == "first"


@WITHOUT_RSYNC
def test_rsync_says_what_was_wrong(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(JobFailed, match="rsync could not fetch"):
        get(Source("rsync", str(tmp_path / "nothing")), folder)


def test_rsync_is_given_the_source_and_the_jobs_code_folder(tmp_path: Path, folder: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    fake = programs / "rsync"
    fake.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/words\n')
    fake.chmod(0o755)
    get(Source("rsync", "host:/srv/x"), folder, PATH=f"{programs}:{os.environ['PATH']}")
    assert (tmp_path / "words").read_text() == f"-a -- host:/srv/x {folder}/code/\n"


# --- links --------------------------------------------------------------------------------------


class Place:
    """A working directory that jobs share."""

    def __init__(self, tmp_path: Path) -> None:
        self.home = tmp_path
        self.jobs = tmp_path / "jobs"
        self.working_dir = tmp_path / "work"
        self.working_dir.mkdir()
        self.shown = self.working_dir / "code" / "repo"
        self.asked: list[str] = []
        self.answer = Neighbour.BUSY

    def job(self, name: str) -> Path:
        made = new_folder(self.home, f"default/{name}")
        (made / "code" / "repo").mkdir()
        (made / "code" / "repo" / "of").write_text(name)
        return made

    def link(self, folder: Path) -> None:
        link(folder, self.working_dir, self.jobs, self._neighbour)

    def _neighbour(self, key: str) -> Neighbour:
        self.asked.append(key)
        return self.answer

    def shows(self) -> str:
        return (self.shown / "of").read_text()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_the_code_shows_up_in_the_working_directory(place: Place) -> None:
    one = place.job("one")
    place.link(one)
    place.link(one)
    assert place.shows() == "one"
    assert place.asked == []


def test_a_link_of_a_job_that_is_over_is_taken_over(place: Place) -> None:
    one, two = place.job("one"), place.job("two")
    place.link(one)
    place.answer = Neighbour.OVER
    place.link(two)
    assert place.shows() == "two"
    assert place.asked == ["default/one"]


def test_a_link_of_a_job_that_is_gone_is_taken_over(place: Place) -> None:
    one, two = place.job("one"), place.job("two")
    place.link(one)
    shutil.rmtree(one)
    place.answer = Neighbour.OVER
    place.link(two)
    assert place.shows() == "two"


def test_a_link_of_a_running_job_with_other_code_is_left_alone(place: Place) -> None:
    one, two = place.job("one"), place.job("two")
    place.link(one)
    with pytest.raises(JobFailed, match=r"belongs to the job default/one.*--working-dir"):
        place.link(two)
    assert place.shows() == "one"


def test_a_link_of_a_job_with_the_same_code_is_shared_and_handed_on(place: Place) -> None:
    one, two = place.job("one"), place.job("two")
    place.link(one)
    place.answer = Neighbour.SAME
    place.link(two)
    assert place.shows() == "one"
    unlink(one, [two])
    assert place.shows() == "two"


@pytest.mark.parametrize("what", ["file", "folder", "link", "dangling"])
def test_what_no_job_has_made_is_never_touched(place: Place, what: str, tmp_path: Path) -> None:
    place.shown.parent.mkdir()
    match what:
        case "file":
            place.shown.write_text("mine")
        case "folder":
            place.shown.mkdir()
        case "link":
            place.shown.symlink_to(tmp_path)
        case _:
            place.shown.symlink_to(tmp_path / "nowhere")
    before = os.lstat(place.shown)
    one = place.job("one")
    with pytest.raises(JobFailed, match="was not made by a job"):
        place.link(one)
    unlink(one)
    assert os.lstat(place.shown).st_ino == before.st_ino


def test_a_job_that_goes_takes_its_link_along_and_no_other(place: Place) -> None:
    one, two = place.job("one"), place.job("two")
    place.link(one)
    unlink(two)
    assert place.shows() == "one"
    unlink(one)
    assert not (place.working_dir / "code").exists()
    unlink(one)


def test_a_folder_that_was_there_before_stays(place: Place) -> None:
    (place.working_dir / "code").mkdir()
    one = place.job("one")
    place.link(one)
    unlink(one)
    assert list((place.working_dir / "code").iterdir()) == []


def test_a_working_directory_that_is_not_there_or_not_writable_is_said(
    place: Place, tmp_path: Path
) -> None:
    one = place.job("one")
    with pytest.raises(JobFailed, match="does not exist"):
        link(one, tmp_path / "nowhere", place.jobs, lambda key: Neighbour.BUSY)
    (place.working_dir / "code").write_text("a file of that name")
    with pytest.raises(JobFailed, match="cannot link the fetched code"):
        place.link(one)
