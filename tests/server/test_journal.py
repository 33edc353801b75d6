"""The journal by itself: what is saved is loaded, and what cannot be read is refused."""

import shutil
import sqlite3
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from midflight.backends.local import journal as journal_module
from midflight.backends.local.journal import Journal
from midflight.backends.place import Noted, differences
from midflight.controller.commands import Record
from midflight.controller.spec import Kind, Spec
from midflight.controller.state import Cluster, Instance, Job, Node, Operation, Phase, Role
from midflight.errors import StoreError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    opened = Journal(path)
    yield opened
    opened.close()


def job(name: str = "bert", uid: str = "1") -> Job:
    spec = Spec(Kind.ETJOB, name, "python train.py", secrets={"password": "hunter2"})
    instance = Instance(f"{name}-worker-0", Role.WORKER, 0, 1, 10.0)
    operation = Operation(f"{name}-10", "scaleout", 1, 60.0, 10.0, 70.0)
    return Job(spec, uid, 10.0, 1, instances={instance.name: instance}, operations=(operation,))


def cluster(*jobs: Job) -> Cluster:
    return Cluster({"here": Node("here", "127.0.0.1", 2)}, {j.key: j for j in jobs})


def note(text: str, key: str = "default/bert") -> Noted:
    return Noted(10.0, Record(key, "job/bert", "Normal", "Said", text))


def reopened(path: Path) -> Cluster:
    again = Journal(path)
    try:
        return again.load()
    finally:
        again.close()


def test_what_was_saved_is_loaded(journal: Journal, path: Path) -> None:
    state = cluster(job(), job("gpt", "2"))
    journal.save(Cluster(), state, [note("hello")])
    journal.close()
    assert reopened(path) == state


def test_only_what_differs_is_written() -> None:
    one, two = job(), job("gpt")
    before = {"a": one, "b": two, "c": two}
    after = {"a": one, "b": replace(two, phase=Phase.RUNNING), "d": one}
    assert differences(before, after) == {"b": after["b"], "d": one, "c": None}
    assert differences(before, before) == {}


def test_a_job_that_is_gone_takes_its_events_with_it(journal: Journal) -> None:
    journal.save(Cluster(), cluster(job()), [note("one"), note("two", "default/gpt")])
    journal.save(cluster(job()), cluster(), [])
    assert journal.events("default/bert") == []
    assert [noted.record.message for noted in journal.all_events()] == ["two"]


def test_a_job_of_the_same_name_does_not_inherit_events(journal: Journal) -> None:
    journal.save(Cluster(), cluster(job()), [note("old")])
    journal.save(cluster(job()), cluster(job(uid="2")), [note("new")])
    assert [noted.record.message for noted in journal.events("default/bert")] == ["new"]
    assert journal.load().jobs["default/bert"].uid == "2"


def test_the_newest_500_events_of_a_job_are_kept(journal: Journal) -> None:
    for start in (0, 400):
        journal.save(Cluster(), Cluster(), [note(str(n)) for n in range(start, start + 400)])
    journal.save(Cluster(), Cluster(), [note("other", "default/gpt")])
    kept = [noted.record.message for noted in journal.events("default/bert")]
    assert kept == [str(n) for n in range(300, 800)]
    assert len(journal.events("default/gpt")) == 1


def test_the_file_is_for_its_user_alone(journal: Journal, path: Path) -> None:
    journal.save(Cluster(), cluster(job()), [])
    for file in path.parent.glob("journal.db*"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_what_cannot_be_saved_leaves_the_journal_as_it_was(journal: Journal) -> None:
    journal.save(Cluster(), cluster(job()), [])
    broken = replace(job("gpt"), reason="\ud800")  # half a character, which no file can hold
    with pytest.raises(Exception, match="surrogate"):
        journal.save(cluster(job()), cluster(broken), [note("lost")])
    assert journal.load() == cluster(job())
    assert journal.all_events() == []


def test_a_newer_journal_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(journal_module, "VERSION", 7)
        Journal(path).close()
    with pytest.raises(StoreError, match=r"written by a newer Midflight \(.*format 7\).*this is"):
        Journal(path)


@pytest.mark.parametrize("damage", ["foreign", "torn", "other-database", "row"])
def test_a_broken_journal_is_refused_and_left_as_it_is(path: Path, damage: str) -> None:
    journal = Journal(path)
    journal.save(Cluster(), cluster(*(job(f"job-{n}") for n in range(50))), [])
    journal.close()
    break_it(path, damage)
    kept = path.with_suffix(".kept")
    shutil.copy(path, kept)
    with pytest.raises(StoreError, match=r"is damaged .* left as it is: put a copy back, or move"):
        reopened(path)
    assert path.read_bytes() == kept.read_bytes()


def break_it(path: Path, damage: str) -> None:
    match damage:
        case "foreign":
            path.write_bytes(b"this is not a database, but a letter to you" * 100)
        case "torn":
            data = bytearray(path.read_bytes())
            data[4096 * 2 :] = b"\xff" * (len(data) - 4096 * 2)
            path.write_bytes(data)
        case "other-database":
            path.unlink()
            with sqlite3.connect(path) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("CREATE TABLE songs (name TEXT)")
            connection.close()
        case _:
            with sqlite3.connect(path) as connection:
                connection.execute("UPDATE jobs SET json = '{}' WHERE key = 'default/job-7'")
            connection.close()
