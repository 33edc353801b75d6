"""The answers that pods in real containers get when they look a name up."""

import struct

import pytest

from tests.kubernetes.plane.real_dns import addresses, answer

KUBERNETES = {
    "metadata": {"name": "kubernetes", "namespace": "default"},
    "spec": {"clusterIP": "10.96.0.1"},
}
KNOWN = addresses(
    "cluster.local",
    [("here", "job-launcher", "10.1.0.2"), ("here", "job-launcher", "10.1.0.3")],
    [KUBERNETES],
)
A, AAAA = 1, 28


def question(name: str, kind: int = A) -> bytes:
    labels = b"".join(bytes([len(word)]) + word.encode() for word in name.split("."))
    return struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + struct.pack(">BHH", 0, kind, 1)


def said(name: str, kind: int = A) -> tuple[int, list[str]]:
    """The code, and the addresses."""
    asked = question(name, kind)
    reply = answer(asked, KNOWN)
    assert reply is not None
    number, flags, questions, answers, _, _ = struct.unpack_from(">HHHHHH", reply)
    assert (number, questions) == (7, 1) and reply[12 : len(asked)] == asked[12:]
    rest = reply[len(asked) :]
    assert len(rest) == 16 * answers
    found = [rest[at + 12 : at + 16] for at in range(0, len(rest), 16)]
    return flags & 15, [".".join(map(str, ip)) for ip in found]


def test_a_headless_service_means_its_pods() -> None:
    assert said("job-launcher.here.svc.cluster.local") == (0, ["10.1.0.2", "10.1.0.3"])
    assert said("Job-Launcher.here.SVC.cluster.local") == (0, ["10.1.0.2", "10.1.0.3"])


def test_a_service_without_pods_has_its_own_address() -> None:
    assert said("kubernetes.default.svc.cluster.local") == (0, ["10.96.0.1"])


def test_what_is_not_in_the_cluster_does_not_exist() -> None:
    assert said("job-launcher.there.svc.cluster.local") == (3, [])
    assert said("example.org") == (3, [])


def test_a_known_name_has_no_addresses_of_another_kind() -> None:
    assert said("job-launcher.here.svc.cluster.local", AAAA) == (0, [])


@pytest.mark.parametrize("size", range(0, 34, 3))
def test_half_a_question_does_no_harm(size: int) -> None:
    reply = answer(question("job-launcher.here.svc.cluster.local")[:size], KNOWN)
    assert reply is None or reply[3] & 15 == 1
