"""What a member's environment is made of, and what a coordinator's order cannot change."""

from midflight.agent.settings import Settings
from midflight.protocol.messages import StartMember


def environment(own: dict[str, str], ordered: dict[str, str]) -> dict[str, str]:
    settings = Settings(
        join="127.0.0.1:1",
        token_file="token",
        secret=b"secret",
        name="h0",
        slots=1,
        address=None,
        warm=0,
        grace=1.0,
        join_timeout=1.0,
        reconnect_timeout=1.0,
        verbose=False,
        environ=own,
    )
    order = StartMember("m0", 0, ("sh",), "run", 1.0, 1.0, "", ordered)
    return settings.member_environment(order, "127.0.0.1", warm=False)


def test_an_order_adds_to_the_agent_s_environment_and_wins() -> None:
    made = environment({"A": "agent", "B": "agent"}, {"B": "order", "RANK": "1"})
    assert (made["A"], made["B"], made["RANK"]) == ("agent", "order", "1")


def test_loader_variables_of_an_order_are_ignored() -> None:
    names = ("LD_PRELOAD", "LD_AUDIT", "PYTHONPATH", "PYTHONSTARTUP", "BASH_ENV")
    evil = dict.fromkeys(names, "/tmp/evil")
    made = environment({"LD_LIBRARY_PATH": "/opt/lib", "PYTHONPATH": "/code"}, evil)
    assert not any("/tmp/evil" in value for value in made.values())
    assert made["LD_LIBRARY_PATH"] == "/opt/lib"
    assert made["PYTHONPATH"].endswith("/code")
