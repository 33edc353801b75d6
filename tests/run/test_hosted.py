"""What a launcher finds out about the job that it is in, from the environment alone."""

from pathlib import Path

import pytest

from midflight.compat.horovod.runner import flags
from midflight.compat.horovod.runner.options import options as horovod_options
from midflight.errors import UsageError
from midflight.run.claim import claim
from midflight.run.hosted import hosted
from midflight.run.options import Options, parse
from tests.run.scripts import RANK, python

COMMAND = ("--", *python(RANK))


@pytest.fixture
def pod(tmp_path: Path) -> dict[str, str]:
    """The variables of a launcher pod; the hostfile is as a kubelet mounts it."""
    edl = tmp_path / "etc-edl"
    (edl / "..data-1").mkdir(parents=True)
    (edl / "..data").symlink_to("..data-1")
    for name in ("hostfile", "discover_hosts.sh"):
        (edl / "..data-1" / name).write_text("job-worker-0:1\n")
        (edl / name).symlink_to(f"..data/{name}")
    (tmp_path / "token").touch(0o600)
    (tmp_path / "token").write_text("the job's own\n")
    return {
        "PATH": "/usr/bin:/bin",
        "MIDFLIGHT_JOB": "job",
        "MIDFLIGHT_JOB_DIR": str(tmp_path / "run-midflight"),
        "MIDFLIGHT_HOSTFILE": str(edl / "hostfile"),
        "MIDFLIGHT_TOKEN_FILE": str(tmp_path / "token"),
        "MIDFLIGHT_LISTEN": "10.0.0.7:47100",
        "MIDFLIGHT_STORE": f"sqlite://{tmp_path}/store.db",
    }


def read(pod: dict[str, str], *words: str) -> Options:
    return parse([*words, *COMMAND], pod)


def test_the_pods_variables_say_where_everything_is(pod: dict[str, str]) -> None:
    found = read(pod)
    assert found.hosted is not None
    assert str(found.hosted.hostfile) == pod["MIDFLIGHT_HOSTFILE"]
    assert (found.listen, found.store) == ("10.0.0.7:47100", pod["MIDFLIGHT_STORE"])
    assert found.spec.name == "job"


def test_what_the_command_line_says_wins(pod: dict[str, str]) -> None:
    found = read(pod, "--store", "mine.db", "--listen", "127.0.0.1:0")
    assert (found.listen, found.store) == ("127.0.0.1:0", "mine.db")


def test_without_them_the_jobs_folder_has_it_all(pod: dict[str, str]) -> None:
    bare = {name: pod[name] for name in ("PATH", "MIDFLIGHT_JOB", "MIDFLIGHT_JOB_DIR")}
    found = read(bare)
    assert found.hosted is not None and not found.hosted.may_move
    assert found.hosted.hostfile == Path(pod["MIDFLIGHT_JOB_DIR"], "edl", "hostfile")
    assert (found.listen, found.store, found.hosted.token_file) == (None, None, None)


@pytest.mark.parametrize("change", [{"MIDFLIGHT_MEMBER": "m0"}, {"MIDFLIGHT_JOB_DIR": ""}])
def test_elsewhere_they_mean_nothing(pod: dict[str, str], change: dict[str, str]) -> None:
    assert hosted({**pod, **change}) is None
    found = read({**pod, **change})
    assert (found.hosted, found.listen, found.store) == (None, None, None)


def test_hosts_that_are_named_are_no_job_of_ours(pod: dict[str, str]) -> None:
    found = read(pod, "-H", "localhost:1")
    assert (found.hosted, found.listen, found.store) == (None, None, None)


def test_the_script_beside_the_hostfile_is_the_jobs_own(
    pod: dict[str, str], tmp_path: Path
) -> None:
    own = tmp_path / "etc-edl" / "discover_hosts.sh"
    found = read(pod, "--host-discovery-script", str(own))
    assert found.hosted is not None and found.discovery is None
    other = tmp_path / "discover_hosts.sh"
    other.touch()
    assert read(pod, "--host-discovery-script", str(other)).hosted is None


def test_horovodrun_finds_the_same(pod: dict[str, str], tmp_path: Path) -> None:
    own = str(tmp_path / "etc-edl" / "discover_hosts.sh")
    words = ["-np", "2", "--min-np", "1", "--host-discovery-script", own, *COMMAND[1:]]
    found = horovod_options(flags.parse(words), pod)
    assert found.hosted == hosted(pod)
    assert (found.listen, found.store) == ("10.0.0.7:47100", pod["MIDFLIGHT_STORE"])


def test_the_jobs_token_becomes_the_runs(pod: dict[str, str]) -> None:
    options = read(pod)
    claim(options).lock.close()
    assert options.folder.read_token() == b"the job's own"
    assert options.folder.token_file.is_symlink()  # there is no second copy of a secret
    claim(options).lock.close()
    assert options.folder.read_token() == b"the job's own"


def test_a_token_that_is_not_there_is_told_in_one_line(pod: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "token").unlink()
    with pytest.raises(UsageError, match=f"cannot read the token file {tmp_path}/token"):
        claim(read(pod))
