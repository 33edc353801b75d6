"""`make demo`: a real elastic job on this machine, what happens to it, and what that costs.

The job grows, loses a worker, has another one hang, shrinks, ends, and is audited. The pause of an
event is the longest time between two steps of a worker that was there before and after it, less
what a step takes anyway.
"""

import os
import signal
import sys
import time
from collections.abc import Iterable

import pauses
from live import NAME, DemoError, Live

FLAGS = ("-np", "2", "--min-np", "1", "--max-np", "4", "--warm", "2", "--cooldown", "1", "1")


class Story:
    def __init__(self, live: Live) -> None:
        self._live = live
        self._began = time.monotonic()

    def say(self, line: str) -> None:
        print(f"{time.monotonic() - self._began:5.1f} s  {line}", flush=True)

    def more(self, line: str) -> None:
        print(f"         {line}", flush=True)

    def cost(self, survivors: Iterable[str], since: float, until: float) -> str:
        pause = pauses.pause(self._live.logs(), survivors, since, until)
        return (
            f"{1000 * pause.extra:.0f} ms (a step takes {1000 * pause.normal:.0f} ms, the longest "
            f"was {1000 * pause.longest:.0f} ms)"
        )

    def start(self) -> None:
        self.say(f"$ midflight run --name {NAME} {' '.join(FLAGS)} -- python train.py")
        self._live.until_training(2)
        self._settle()
        self.say("2 workers are training")

    def _settle(self) -> None:
        names = [member.name for member in self._live.members()]
        self._live.until_stepping(names, time.monotonic(), steps=40)

    def resize(self, size: int) -> None:
        before = {member.name for member in self._live.members()}
        self.say(f"$ midflight resize {NAME} --to {size}")
        since = time.monotonic()
        line = self._live.command("resize", NAME, "--to", str(size))
        names = [member.name for member in self._live.members()]
        until = self._live.until_stepping(names, time.monotonic())
        self.say(line)
        joined = pauses.first_step(self._live.logs(), since)
        if joined is not None:
            self.more(f"{joined:.2f} s from the request to the newcomers' first step")
        self.more(f"pause of those who stayed: {self.cost(before & set(names), since, until)}")
        self._settle()

    def strike(self, rank: int, how: signal.Signals, told: str) -> None:
        """A worker dies or hangs; the others go on, and somebody takes its place."""
        members = self._live.members()
        victim = members[rank]
        others = [member.name for member in members if member is not victim]
        self.say(told.format(name=victim.name, rank=rank))
        since = time.monotonic()
        os.kill(victim.pid, how)
        until = self._live.until_stepping(others, since)
        self.say(f"the other {len(others)} went on where they were")
        self.more(f"pause: {self.cost(others, since, until)}")
        self._live.until_training(len(members))
        new = next(m for m in self._live.members() if m.name not in {o.name for o in members})
        arrived = self._live.until_stepping([new.name], until, steps=2)
        self.say(f"{new.name} has taken the place of {victim.name}, after a cool-down of 1 s")
        self.more(f"pause: {self.cost(others, until, arrived)}")
        self._settle()

    def end(self) -> None:
        code = self._live.end()
        if code != 0:
            raise DemoError(f"the run ended with exit code {code}:\n{self._live.output()}")
        steps = max(log[-1].number for log in self._live.logs().values())
        self.say(f"the script has come to its end after {steps} steps, exit code 0")
        left = self._live.left_over()
        if left:
            raise DemoError(f"processes are left over: {left}")
        self.say(f"$ midflight audit {NAME}")
        print(f"\n{self._live.command('audit', NAME)}\n")
        self.say("no process is left")


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    print("Midflight: one training job on this machine, 2 to 4 workers, 1 MB of gradients\n")
    try:
        with Live(*FLAGS) as live:
            story = Story(live)
            story.start()
            story.resize(4)
            story.strike(0, signal.SIGKILL, "kill -KILL: {name}, rank {rank}")
            story.strike(2, signal.SIGSTOP, "kill -STOP: {name}, rank {rank}; it hangs")
            story.resize(2)
            story.end()
    except KeyboardInterrupt:
        print("\ninterrupted; nothing is left running", file=sys.stderr)
        return 130
    except (DemoError, ValueError) as error:
        print(f"\ndemo: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
