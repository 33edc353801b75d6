"""What is kept for a coordinator that is away, and what is given up first."""

from midflight.agent.outbox import Outbox
from midflight.protocol.messages import MemberExited, MemberProbed, Output


def printed(*lines: str, member: str = "m1") -> Output:
    return Output(member, "stdout", lines, 1.0)


def emptied(outbox: Outbox) -> list[object]:
    messages = []
    while outbox:
        messages.append(outbox.take())
    return messages


def test_messages_keep_their_order() -> None:
    outbox = Outbox()
    messages = [printed("a"), MemberExited("m1", 0, ""), printed("b", member="m2")]
    for message in messages:
        outbox.add(message)
    assert emptied(outbox) == messages


def test_the_oldest_lines_are_dropped_and_counted() -> None:
    outbox = Outbox(lines=3)
    for number in range(6):
        outbox.add(printed(f"line {number}"))
    first, *rest = emptied(outbox)
    assert isinstance(first, Output)
    assert "3 lines were dropped" in first.lines[0]
    assert first.lines[1:] == ("line 3",)
    assert rest == [printed("line 4"), printed("line 5")]


def test_long_lines_count_by_their_length() -> None:
    outbox = Outbox(characters=100)
    outbox.add(printed("x" * 90))
    outbox.add(printed("y" * 90))
    (only,) = emptied(outbox)
    assert isinstance(only, Output)
    assert only.lines[1:] == ("y" * 90,)


def test_only_output_is_ever_dropped() -> None:
    outbox = Outbox(lines=1)
    outbox.add(MemberExited("m1", 1, "tail"))
    for number in range(5):
        outbox.add(printed(str(number), member="m2"))
    assert emptied(outbox)[0] == MemberExited("m1", 1, "tail")


def test_what_was_sent_after_the_last_answered_beat_is_sent_again() -> None:
    outbox = Outbox()
    outbox.add(MemberExited("read", 0, ""))
    emptied(outbox)
    outbox.beat_sent()
    unread = [printed("maybe read"), MemberExited("m1", 1, "")]
    for message in (unread[0], MemberProbed("m1", "running"), unread[1]):
        outbox.add(message)
    emptied(outbox)
    outbox.beat_heard()
    outbox.add(printed("later", member="m2"))
    outbox.reconnected()
    assert emptied(outbox) == [*unread, printed("later", member="m2")]


def test_nothing_is_sent_again_once_a_later_beat_was_answered() -> None:
    outbox = Outbox()
    for number in range(3):
        outbox.add(printed(str(number)))
        emptied(outbox)
        outbox.beat_sent()
        outbox.beat_heard()
    outbox.reconnected()
    assert emptied(outbox) == []
