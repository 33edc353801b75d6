"""What is to be said to the coordinator, in order, until it is known to have been read.

While there is no coordinator, everything is kept, but of the members' output only so much: the
oldest lines go first, and a line in their place says how many. The answer to a beat shows that
all that was sent before the beat has been read; what was sent later is sent again after a
reconnect, so that neither an end nor a traceback is lost. The coordinator may hear it twice: it
knows members by names that are never used twice, so it can tell.
"""

from collections import Counter, deque

from midflight.protocol.messages import MemberExited, MemberNotStarted, Output

KEPT_LINES = 10_000
KEPT_CHARACTERS = 16 << 20
# The rest is answers, which a new coordinator has not asked for.
_SENT_AGAIN = (MemberExited, MemberNotStarted, Output)


class Outbox:
    def __init__(self, lines: int = KEPT_LINES, characters: int = KEPT_CHARACTERS) -> None:
        self._most_lines = lines
        self._most_characters = characters
        self._queue: deque[object] = deque()
        self._lines = 0
        self._characters = 0
        self._dropped: Counter[str] = Counter()
        self._sent: deque[tuple[int, object]] = deque()  # with the beats sent before it
        self._sent_characters = 0
        self._beats_sent = 0
        self._beats_heard = 0

    def __bool__(self) -> bool:
        return bool(self._queue)

    def add(self, message: object) -> None:
        self._queue.append(message)
        self._count(message, 1)
        if self._too_much():
            self._drop_oldest()

    def take(self) -> object:
        """The next message to send."""
        message = self._queue.popleft()
        self._count(message, -1)
        if isinstance(message, Output):
            message = self._with_notice(message)
        if isinstance(message, _SENT_AGAIN):
            self._sent.append((self._beats_sent, message))
            self._sent_characters += _characters(message)
            while self._sent_characters > self._most_characters:
                self._forget_first()
        return message

    def beat_sent(self) -> None:
        self._beats_sent += 1

    def beat_heard(self) -> None:
        self._beats_heard += 1
        while self._sent and self._sent[0][0] < self._beats_heard:
            self._forget_first()

    def reconnected(self) -> None:
        """Put back to the front what may not have been read."""
        for _, message in reversed(self._sent):
            self._queue.appendleft(message)
            self._count(message, 1)
        self._sent.clear()
        self._sent_characters = self._beats_sent = self._beats_heard = 0

    def _forget_first(self) -> None:
        _, message = self._sent.popleft()
        self._sent_characters -= _characters(message)

    def _with_notice(self, message: Output) -> Output:
        lost = self._dropped.pop(message.member, 0)
        if not lost:
            return message
        notice = f"[midflight: {lost} lines were dropped here while no coordinator was listening]"
        return Output(message.member, message.stream, (notice, *message.lines), message.at)

    def _drop_oldest(self) -> None:
        kept: deque[object] = deque()
        for message in self._queue:
            if isinstance(message, Output) and self._too_much():
                self._dropped[message.member] += len(message.lines)
                self._count(message, -1)
            else:
                kept.append(message)
        self._queue = kept

    def _too_much(self) -> bool:
        return self._lines > self._most_lines or self._characters > self._most_characters

    def _count(self, message: object, sign: int) -> None:
        if isinstance(message, Output):
            self._lines += sign * len(message.lines)
            self._characters += sign * _characters(message)


def _characters(message: object) -> int:
    return sum(map(len, message.lines)) if isinstance(message, Output) else 0
