"""The limit of descriptors: lifted for ourselves, and as it was for the user's programs."""

import resource
import subprocess
import sys

import pytest

from midflight import descriptors

SCRIPT = """
import resource, subprocess, sys
from midflight import descriptors
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (99, hard))
descriptors.raise_limit()
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(hard, descriptors.ENOUGH), hard)
descriptors.raise_limit()
tell = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
child = [sys.executable, "-c", tell]
subprocess.run(child, preexec_fn=descriptors.restore_limit, check=True)
"""


def test_a_child_keeps_the_limit_that_its_user_has_set() -> None:
    told = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert (told.stdout, told.stderr) == ("99\n", "")


@pytest.mark.parametrize(
    ("soft", "hard", "raised"),
    [
        (1024, 4096, 4096),
        (1024, 1 << 30, descriptors.ENOUGH),  # as containers often have it
        (1024, resource.RLIM_INFINITY, descriptors.ENOUGH),
        (1 << 20, 1 << 30, 1 << 20),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, resource.RLIM_INFINITY),
    ],
)
def test_the_limit_is_lifted_to_what_is_enough_and_never_lowered(
    soft: int, hard: int, raised: int
) -> None:
    assert descriptors.raised(soft, hard) == raised


def test_a_system_that_does_not_lift_the_limit_is_no_reason_to_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(descriptors, "_inherited", None)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    descriptors.raise_limit()
    descriptors.restore_limit()
