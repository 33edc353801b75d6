"""Limits: what is enforced, how, and what is said about the rest."""

from pathlib import Path

import pytest

from midflight.backends.local.limits import (
    limit_of,
    make_cgroup,
    plan_limits,
    ran_out_of_memory,
    remove_cgroup,
    writable_group,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", 2.0),
        ("500m", 0.5),
        ("1.5", 1.5),
        ("512M", 512e6),
        ("2Gi", 2.0 * 2**30),
        ("64Ki", 65536.0),
        (" 3G ", 3e9),
        ("", None),
        ("0", None),
        ("two", None),
        ("2Zi", None),
        ("-1", None),
    ],
)
def test_quantities_are_read_as_kubernetes_writes_them(text: str, value: float | None) -> None:
    assert limit_of(text) == value


def groups(tmp_path: Path, own: str, enabled: dict[str, str]) -> tuple[Path, Path]:
    """A fake of a cgroup v2 tree: the files that tell where it is, and which group is ours."""
    root = tmp_path / "cgroup"
    for path, controllers in enabled.items():
        group = root / path
        group.mkdir(parents=True, exist_ok=True)
        (group / "cgroup.subtree_control").write_text(controllers + "\n")
        (group / "cgroup.procs").write_text("")
    mounts = tmp_path / "mounts"
    mounts.write_text(f"proc /proc proc rw 0 0\ncgroup2 {root} cgroup2 rw,nosuid 0 0\n")
    self_group = tmp_path / "self"
    self_group.write_text(f"0::/{own}\n")
    return mounts, self_group


def test_in_a_fake_cgroup_tree_the_nearest_group_with_the_controllers_is_taken(
    tmp_path: Path,
) -> None:
    own = "user.slice/app.slice/shell.scope"
    tree = {own: "", "user.slice/app.slice": "cpu memory pids", "user.slice": "cpu memory"}
    mounts, self_group = groups(tmp_path, own, tree)
    found = writable_group({"cpu", "memory"}, mounts, self_group)
    assert found == tmp_path / "cgroup/user.slice/app.slice"
    assert writable_group({"io"}, mounts, self_group) is None


def test_a_machine_without_cgroup_v2_has_no_group(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n")
    own = tmp_path / "self"
    own.write_text("4:memory:/\n")
    assert writable_group({"memory"}, mounts, own) is None
    assert writable_group({"memory"}, tmp_path / "nowhere", own) is None


def test_a_fake_cgroup_gets_both_limits_and_goes_again(tmp_path: Path) -> None:
    limits, notes = plan_limits("1500m", "1Gi", "default/job-worker-0", tmp_path)
    assert notes == ()
    group = tmp_path / "midflight-default-job-worker-0"
    assert limits == {"cpus": 1.5, "memory": 2**30, "cgroup": str(group)}
    make_cgroup(limits)
    make_cgroup(limits)
    assert (group / "memory.max").read_text() == str(2**30)
    assert (group / "cpu.max").read_text() == "150000 100000"
    assert not remove_cgroup(str(group))  # a real one has no files that would have to go first
    for file in group.iterdir():
        file.unlink()
    assert remove_cgroup(str(group))
    assert remove_cgroup(str(group))


def test_a_fake_cgroup_tells_of_an_end_for_lack_of_memory(tmp_path: Path) -> None:
    events = tmp_path / "memory.events"
    events.write_text("low 0\noom 1\noom_kill 0\n")
    assert not ran_out_of_memory(str(tmp_path))
    events.write_text("low 0\noom 1\noom_kill 2\n")
    assert ran_out_of_memory(str(tmp_path))
    assert not ran_out_of_memory("")
    assert not ran_out_of_memory(str(tmp_path / "nowhere"))


def test_what_is_not_enforced_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("midflight.backends.local.limits.writable_group", lambda _: None)
    limits, notes = plan_limits("2", "4Gi", "job-worker-0")
    assert limits == {"cpus": 2.0, "memory": 4 * 2**30, "cgroup": ""}
    assert notes == (
        "--cpu 2 is not enforced: no cgroup v2 that this user may write to",
        "--memory 4Gi is enforced for each process alone: no cgroup v2 that this user may write to",
    )


def test_no_limits_need_no_cgroup_and_no_note() -> None:
    assert plan_limits("", "", "job-worker-0") == (
        {"cpus": None, "memory": None, "cgroup": ""},
        (),
    )
    make_cgroup({"cpus": None, "memory": None, "cgroup": ""})
    assert remove_cgroup("")
