"""`python -m bench CASE ... [--json FILE]`: parse, measure, print."""

import argparse
import signal
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from bench import cli_case, coordinator_case, flight_case, wire_case
from bench.cases import failure, join, large, resize, steady
from bench.horovod_case import HOROVOD
from bench.midflight_case import Midflight
from bench.peers.ddp import Ddp
from bench.peers.torchft import Torchft
from bench.peers.torchrun import Torchrun
from bench.plan import BY_NAME, CASES, SYSTEMS, WAYS, Item, Settings, plan
from bench.processes import BenchError
from bench.rows import Row, summarise, table, to_json
from bench.systems import System
from bench.torchrun_case import DropIn

MEASURED: tuple[System, ...] = (
    Ddp(),
    Midflight(),
    *(Midflight(name, joining=name.removeprefix("midflight-")) for name in WAYS),
    Torchrun(),
    Torchft(),
    HOROVOD,
    DropIn(),
)
KNOWN = {system.name: system for system in MEASURED}
ALL = [case for case in CASES if case not in BY_NAME]
ALONE_RUNS = {"flight": flight_case.run, "wire": wire_case.run, "cli": cli_case.run}


def main(arguments: Sequence[str] | None = None) -> int:
    settings, json_file = parse(arguments)
    if "torchft" in settings.systems and find_spec("torchft") is None:
        print(
            "bench: torchft is not installed; `make bench` installs it, or leave it out with"
            " --systems ddp,midflight,torchrun",
            file=sys.stderr,
        )
        return 2
    # Ended by a signal, the finally clauses run, and take the training processes along.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    rows: list[Row] = []
    failed = []
    interrupted = False
    try:
        for item in plan(settings):
            print(f"bench: {item}", file=sys.stderr, flush=True)
            try:
                rows += measure(item, settings)
            except (BenchError, ValueError) as error:
                failed.append(item)
                print(f"bench: {item}: {error}", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        interrupted = True
        print("bench: interrupted; this is what was measured", file=sys.stderr)
    figures = summarise(rows)
    print(table(figures))
    if json_file:
        json_file.write_text(to_json(figures))
    for item in failed:
        print(f"bench: no figure from {item}", file=sys.stderr)
    return 1 if failed or interrupted or not rows else 0


def measure(item: Item, settings: Settings) -> list[Row]:
    if item.case == "coordinator":
        return coordinator_case.run(settings.members)
    if item.case in ALONE_RUNS:
        return ALONE_RUNS[item.case]()
    if item.case == "kubernetes":
        from bench import kubernetes_case  # its parts are those of the tests

        return kubernetes_case.run()
    if item.case == "checkpoint":
        from bench import checkpoint_case  # which imports torch

        return checkpoint_case.run(item.shape.megabytes)
    systems = [KNOWN[name] for name in item.systems]
    if item.kind == "steady":
        return steady.run(systems, item.shape, settings.rounds)
    if item.case == "dropin" and item.kind == "resize":
        return resize.run(systems[0], item.shape)
    if item.case in ("failure", "dropin"):
        return failure.run(systems[0], item.shape, item.repeat, item.kind)
    one = {"resize": resize.run, "join": join.run, "large": large.run}[item.case]
    return one(systems[0], item.shape)


def parse(arguments: Sequence[str] | None) -> tuple[Settings, Path | None]:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("case", choices=(*CASES, "all"))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the medians there, too")
    parser.add_argument("--repeats", type=count, default=5, help="of everything (default 5)")
    parser.add_argument("--rounds", type=count, default=12, help="turns per steady repeat (12)")
    parser.add_argument("--systems", type=names, default=SYSTEMS, help=",".join((*SYSTEMS, *WAYS)))
    parser.add_argument("--megabytes", type=counts, default=(), help="of gradients, as in 1,100")
    parser.add_argument("--workers", type=counts, default=(), help="before the event, as in 2,3")
    parser.add_argument("--members", type=counts, default=(), help="of the case coordinator")
    given = parser.parse_args(arguments)
    settings = Settings(
        cases=ALL if given.case == "all" else (given.case,),
        systems=given.systems,
        megabytes=given.megabytes,
        workers=given.workers,
        members=given.members,
        repeats=given.repeats,
        rounds=given.rounds,
    )
    return settings, given.json


def count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a number from 1 on was wanted, not {text!r}")
    return int(text)


def counts(text: str) -> tuple[int, ...]:
    return tuple(count(part) for part in text.split(","))


def names(text: str) -> tuple[str, ...]:
    for name in text.split(","):
        if name not in (*SYSTEMS, *WAYS):
            known = ", ".join((*SYSTEMS, *WAYS))
            raise argparse.ArgumentTypeError(f"no system is called {name!r}; there are {known}")
    return tuple(text.split(","))


if __name__ == "__main__":
    sys.exit(main())
