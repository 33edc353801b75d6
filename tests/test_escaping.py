"""Text that somebody else chose does not command the terminal of whoever looks at it."""

import io
import json
import logging
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from midflight import terminal
from midflight.cli import main as cli
from midflight.cli import messages, output
from midflight.cli.verbs import logs, version
from midflight.coordinator.output import Printer
from midflight.errors import HandshakeRefused
from midflight.printable import printable
from midflight.protocol.cluster_api import ClusterApi
from midflight.protocol.dialect import Dialect
from midflight.protocol.handshake import VERSION, Session, check_challenge, check_welcome
from midflight.protocol.job import JobSpec
from midflight.protocol.messages import Challenge, Hello, Refused
from midflight.terminal import Escaped, LogFilter

EVIL = "x\x1b]0;owned\x07\x1b[2J\x9b31m\u202etxt\r\x7f"
COMMANDS = ("\x1b", "\x07", "\x9b", "\r", "\x7f", "\u202e")


def is_clean(text: str) -> bool:
    return not any(command in text for command in COMMANDS)


def test_control_characters_are_written_out() -> None:
    assert printable("a\x1b[2Jb\tc\nd é 日本") == "a\\x1b[2Jb\tc\nd é 日本"
    assert printable("\x9b\x7f\u202e") == "\\u009b\\u007f\\u202e"
    assert is_clean(printable(EVIL))


def test_what_is_escaped_in_json_is_still_json() -> None:
    text = json.dumps({"message": EVIL}, ensure_ascii=False)
    assert json.loads(printable(text)) == {"message": EVIL}


def test_a_stream_escapes_what_is_written_to_it_and_is_else_itself() -> None:
    inner = io.StringIO()
    stream = Escaped(inner)
    print(output.table(("NAME",), [(EVIL,)]), file=stream)
    stream.write(terminal.CLEAR)
    assert inner.getvalue().endswith("\n" + terminal.CLEAR)
    assert is_clean(inner.getvalue().removesuffix(terminal.CLEAR))
    assert stream.getvalue is not None


def test_a_refusal_of_a_stranger_commands_no_terminal() -> None:
    hello = Hello(VERSION, "member", "m0", "", "")
    challenge = Challenge(VERSION, "")
    refused = Refused(f"{EVIL}\nmidflight: forged line" * 100)
    for check in (
        lambda: check_challenge(refused),
        lambda: check_welcome(refused, Session(challenge, hello), b""),
    ):
        with pytest.raises(HandshakeRefused) as error:
            check()
        said = str(error.value)
        assert is_clean(said) and "\n" not in said and len(said) <= 200


def test_a_log_commands_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    logging.StreamHandler(terminal.ErrorStream()).emit(logging.makeLogRecord({"msg": EVIL}))
    assert stderr.getvalue() == printable(EVIL) + "\n"


def test_no_verb_prints_control_characters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def hostile(argv: object) -> int:
        print(output.fields({"Reason": EVIL}))
        messages.plain(EVIL)
        return 0

    monkeypatch.setattr(version, "main", hostile)
    assert cli.main(["version"]) == 0
    said = capsys.readouterr()
    assert "owned" in said.out and is_clean(said.out)
    assert "owned" in said.err and is_clean(said.err)


def test_our_own_lines_hold_none(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.say(f"refused agent {EVIL}")
    assert is_clean(capsys.readouterr().err)


def test_an_end_of_line_forges_no_row_of_a_table_and_no_line_of_ours(
    capsys: pytest.CaptureFixture[str],
) -> None:
    forged = "gone\nmidflight: the job succeeded"
    assert len(output.table(("NAME",), [(forged,)]).split("\n")) == 2
    assert len(output.fields({"Reason": forged}).split("\n")) == 1
    terminal.say(f"refused {forged}")
    Printer(JobSpec("job", ("sh",), 1, 1, 1), verbose=False).say(forged)
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith("midflight: ") for line in lines] == [True, False, True, False]


def test_the_log_of_a_dialect_holds_no_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    spec = JobSpec("job", ("sh",), 1, 1, 1, dialect=Dialect(log_level="info"))
    Printer(spec, verbose=False).say(f"refused {EVIL}\nINFO:root:forged")
    said = capsys.readouterr().err
    assert is_clean(said) and len(said.splitlines()) == 1


# --- logs -------------------------------------------------------------------------------------


def shown(*pieces: bytes) -> str:
    return b"".join(LogFilter().pass_on(iter(pieces))).decode()


def test_a_log_on_a_terminal_keeps_its_colours_and_loses_the_rest() -> None:
    assert shown(b"\x1b[31mred\x1b[0m\n") == "\x1b[31mred\x1b[0m\n"
    assert shown(b"\x1b]0;title\x07\x1b[2Jx\n") == "\\x1b]0;title\\x07\\x1b[2Jx\n"


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_log_may_come_in_any_pieces(cut: int) -> None:
    text = "é\x1b[1;31mé\x1b[2J日\n".encode()
    assert shown(text[:cut], text[cut:]) == "é\x1b[1;31mé\\x1b[2J日\n"


def test_a_log_that_ends_inside_a_sequence_ends_with_it_escaped() -> None:
    def pieces() -> Iterator[bytes]:
        yield b"x\x1b"

    assert b"".join(LogFilter().pass_on(pieces())) == b"x\\x1b"


class Stdout(io.TextIOWrapper):
    def __init__(self, terminal: bool) -> None:
        super().__init__(io.BytesIO())
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.mark.parametrize(
    ("terminal", "flags", "escaped"),
    [(True, [], True), (True, ["--raw"], False), (False, [], False)],
)
def test_logs_write_controls_out_on_a_terminal_unless_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, flags: list[str], escaped: bool
) -> None:
    sent = b"\x1b[31mred\x1b[0m \x1b]0;title\x07\n"
    stdout, client = Stdout(terminal), SimpleNamespace(logs=lambda *_: iter((sent,)))
    options, server = logs.parser().parse_args(["job", *flags]), cast(ClusterApi, client)
    options.namespace = "default"
    monkeypatch.setattr(sys, "stdout", stdout)
    assert logs._print(server, options, {})
    printed = cast(io.BytesIO, stdout.buffer).getvalue()
    assert printed == (b"\x1b[31mred\x1b[0m \\x1b]0;title\\x07\n" if escaped else sent)
