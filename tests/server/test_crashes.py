"""A server that is killed at each point of its loop, while it submits, scales and deletes.

What was accepted is never lost, what was not is either there as a whole or not at all, and the next
server brings everything to its end.
"""

import pytest

from midflight.backends.crash_points import POINTS, VARIABLE, passing_from
from midflight.client import Client
from midflight.errors import MidflightError, UsageError
from tests.run.site import eventually
from tests.server.site import Site, spec

pytestmark = pytest.mark.slow


def living(site: Site) -> int:
    return len(list((site.home / "fake").iterdir()))


def crashes(site: Site, client: Client, verb: str) -> None:
    """Do it with a server that dies of it."""
    with pytest.raises(MidflightError):
        match verb:
            case "JobSubmitted":
                client.submit(spec("gpt"))
            case "ScaleAsked":
                client.scale("default", "bert", {"to": 3, "timeout": 30})
            case _:
                client.delete("default", "bert")
        client.status()  # it was answered, and then it was over
    assert site.process.wait(10) == -9


@pytest.mark.parametrize("verb", ["JobSubmitted", "ScaleAsked", "JobDeleted"])
@pytest.mark.parametrize("point", POINTS)
def test_a_server_that_is_killed_loses_nothing_and_finishes_what_it_began(
    site: Site, point: str, verb: str
) -> None:
    client = site.serve()
    client.submit(spec("bert"))
    client.wait("default", "bert", "running", 10)
    site.kill()
    crashes(site, site.serve(**{VARIABLE: f"{point}:1:{verb}"}), verb)
    client = site.serve()
    saved = point != "before-save"
    jobs = {job["name"]: job for job in client.jobs("default")}
    match verb:
        case "JobSubmitted":
            assert set(jobs) == ({"bert", "gpt"} if saved else {"bert"})
            if saved:
                client.wait("default", "gpt", "running", 10)
            eventually(lambda: living(site) == (6 if saved else 3))
        case "ScaleAsked":
            operations = client.job("default", "bert")["operations"]
            assert len(operations) == int(saved)
            workers = 3 if saved else 2
            eventually(lambda: client.job("default", "bert")["workers"] == workers)
            eventually(lambda: client.job("default", "bert")["status"] == "RUNNING")
            assert living(site) == workers + 1
        case _:
            if saved:
                client.wait("default", "bert", "gone", 10)
            eventually(lambda: living(site) == (0 if saved else 3))


@pytest.mark.parametrize("event", ["InstanceStarted", "InstanceEnded", "ResizeEnded"])
@pytest.mark.parametrize("point", ["before-save", "after-save"])
def test_what_the_backend_told_is_found_out_again(site: Site, point: str, event: str) -> None:
    client = site.serve(**{VARIABLE: f"{point}:1:{event}"})
    try:
        client.submit(spec("bert"))
        client.wait("default", "bert", "running", 10)
        client.scale("default", "bert", {"to": 1, "timeout": 30})
        client.wait("default", "bert", "finished", 10)
    except MidflightError:
        assert site.process.wait(10) == -9
    client = site.serve()
    client.wait("default", "bert", "running", 10)
    wanted = 2 if event == "InstanceStarted" else 1
    eventually(lambda: client.job("default", "bert")["workers"] == wanted)
    eventually(lambda: living(site) == wanted + 1)


@pytest.mark.parametrize("wish", ["never:1", "before-save", "before-save:0", "before-save:x"])
def test_a_wrong_wish_for_a_crash_is_refused(wish: str) -> None:
    with pytest.raises(UsageError, match="POINT:N"):
        passing_from({VARIABLE: wish})
