"""The agent's command line: options in, one frozen Settings out, and an exit code at the end.

Everything that can be wrong with the options is found here, before anything is started, and said
in one line. Exit codes: 0 ended as asked, 1 refused or left without a coordinator, 2 the options
are wrong or nobody answers at the address, 130 interrupted.
"""

import argparse
import asyncio
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from midflight import descriptors, terminal
from midflight.agent.finding import await_run
from midflight.agent.loop import Agent
from midflight.agent.settings import Settings
from midflight.arguments import count_from, seconds
from midflight.deadlines import GRACE, LONGEST_ABSENCE
from midflight.errors import MidflightError, ProtocolError, UsageError
from midflight.protocol.wire import split_address
from midflight.rundir import read_token


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line instead of the usage text and a line."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    parser = options()
    try:
        settings = _settings(parser.parse_args(argv))
    except UsageError as error:
        parser.error(str(error))
    log = _logger(settings.name, settings.verbose)
    descriptors.raise_limit()
    try:
        return asyncio.run(Agent(settings, log).run())
    except MidflightError as error:
        log.error("%s", error)
        return 2 if isinstance(error, UsageError) else 1


def options() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="midflight agent",
        description="Runs on each host of a run: starts its members, watches over them, and takes "
        "them down when it ends.",
    )
    add = parser.add_argument
    add("--join", metavar="HOST:PORT", help="where the coordinator listens")
    add("--token-file", metavar="FILE", help="holds the secret of the run")
    add("--run-dir", metavar="DIR", help="the run's folder, which has both; it is waited for")
    add("--name", required=True, help="of this host, unique in the run")
    add("--slots", type=count_from(1), default=1, help="how many members fit here (default 1)")
    add("--address", help="what the members of other hosts reach this one at (default: detected)")
    add("--warm", type=count_from(0), default=0, metavar="N", help="members kept ready to start")
    add("--warm-later", action="store_true", help="but the first members start cold")
    add("--grace", type=seconds, default=GRACE, help="notice given on SIGTERM, s (default 30)")
    add("--join-timeout", type=seconds, default=30.0, help="for the first answer, s (default 30)")
    add(
        "--reconnect-timeout",
        type=seconds,
        default=LONGEST_ABSENCE,
        help="without coordinator and members (600 s)",
    )
    add("--verbose", action="store_true", help="print what Midflight is doing")
    return parser


def _settings(options: argparse.Namespace) -> Settings:
    if not options.name or any(sign.isspace() for sign in options.name):
        raise UsageError(f"argument --name: wanted a name without blanks, got {options.name!r}")
    join, token_file = _where(options)
    return Settings(
        join=join,
        token_file=str(Path(token_file).absolute()),
        secret=read_token(Path(token_file)),
        name=options.name,
        slots=options.slots,
        address=options.address,
        warm=options.warm,
        warm_later=options.warm_later,
        grace=options.grace,
        join_timeout=options.join_timeout,
        reconnect_timeout=options.reconnect_timeout,
        verbose=options.verbose,
        environ=dict(os.environ),
        run_dir=options.run_dir,
    )


def _where(options: argparse.Namespace) -> tuple[str, str]:
    """The coordinator's address and the token file, however they were given."""
    if options.run_dir is not None:
        if options.join or options.token_file:
            raise UsageError("wanted --run-dir, or --join and --token-file, got both")
        address, token_file = await_run(Path(options.run_dir))
        return address, str(token_file)
    if missing := [f"--{name}" for name in ("join", "token_file") if not getattr(options, name)]:
        names = " and ".join(missing).replace("_", "-")
        raise UsageError(f"the following arguments are required: {names}, or --run-dir")
    try:
        split_address(options.join)
    except ProtocolError as error:
        raise UsageError(f"argument --join: {error}") from None
    return options.join, options.token_file


def _logger(name: str, verbose: bool) -> logging.Logger:
    log = logging.getLogger("midflight.agent")
    handler = logging.StreamHandler(terminal.ErrorStream())
    handler.setFormatter(logging.Formatter(f"midflight agent {name}: %(message)s"))
    log.handlers = [handler]
    log.propagate = False
    log.setLevel(logging.INFO if verbose else logging.WARNING)
    return log
