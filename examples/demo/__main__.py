"""`make demo`: this machine as a small cluster, one training job on it, and what happens to both.

The job is submitted and made larger, loses a worker, has another one hang, the server is killed,
the job is made smaller, ends, and is audited. The pause of an event is the longest time between two
steps of a worker that was there before and after it, less what a step takes anyway. With the name
of a file, the flight plan of the job is kept there.
"""

import os
import signal
import sys
import time
from collections.abc import Iterable

import pauses
from live import NAME, DemoError, Live

SIZES = ("--workers=2", "--min-workers=1", "--max-workers=4")


class Story:
    def __init__(self, live: Live) -> None:
        self._live = live
        self._began = time.monotonic()

    def say(self, line: str) -> None:
        print(f"{time.monotonic() - self._began:5.1f} s  {line}", flush=True)

    def more(self, text: str) -> None:
        for line in text.splitlines():
            print(f"         {line}".rstrip(), flush=True)

    def types(self, *words: str) -> None:
        """One command, and what it prints."""
        self.say(f"$ midflight {' '.join(words)}")
        self.more(self._live.command(*words))

    def cost(self, survivors: Iterable[str], since: float, until: float) -> str:
        pause = pauses.pause(self._live.logs(), survivors, since, until)
        return (
            f"{1000 * pause.extra:.0f} ms (a step takes {1000 * pause.normal:.0f} ms, the longest "
            f"was {1000 * pause.longest:.0f} ms)"
        )

    def start(self) -> None:
        self.types("up", "--nodes", "3", "--gpus-per-node", "2")
        self.say(f"$ midflight submit etjob --name={NAME} --gpus=1 {' '.join(SIZES)} 'python ...'")
        job = ("submit", "etjob", f"--name={NAME}", "--gpus=1", *SIZES, self._live.training)
        self.more(self._live.command(*job))
        self._live.until_training(2)
        self._settle()
        self.types("list")
        self.types("get", NAME)

    def _settle(self) -> None:
        names = [member.name for member in self._live.members()]
        self._live.until_stepping(names, time.monotonic(), steps=40)

    def scale(self, verb: str, count: int) -> None:
        before = {member.name for member in self._live.members()}
        since = time.monotonic()
        self.types(verb, "etjob", f"--name={NAME}", f"--count={count}", "--timeout=1m", "--wait")
        names = [member.name for member in self._live.members()]
        until = self._live.until_stepping(names, time.monotonic())
        joined = pauses.first_step(self._live.logs(), since)
        if joined is not None:
            self.more(f"{joined:.2f} s from the command to the newcomers' first step")
        self.more(f"pause of those who stayed: {self.cost(before & set(names), since, until)}")
        self._settle()

    def kill_a_worker(self) -> None:
        """Its instance is started again, and joins the others."""
        members = self._live.members()
        victim = next(member for member in members if member.host.endswith("-worker-0"))
        others = [member.name for member in members if member is not victim]
        since = time.monotonic()
        self.types("chaos", "kill", NAME, victim.host)
        until = self._live.until_stepping(others, self._live.until_without(victim.name))
        self.say(f"the other {len(others)} went on where they were")
        self.more(f"pause: {self.cost(others, since, until)}")
        self._live.until_training(len(members))
        self.say(f"{victim.host} is back and has joined them")
        self._settle()

    def let_one_hang(self) -> None:
        members = self._live.members()
        victim = members[1]
        others = [member.name for member in members if member is not victim]
        self.say(f"$ kill -STOP {victim.pid}    # rank 1 hangs")
        since = time.monotonic()
        os.kill(victim.pid, signal.SIGSTOP)
        until = self._live.until_stepping(others, self._live.until_without(victim.name))
        self.say(f"it was found, and the other {len(others)} went on where they were")
        self.more(f"pause: {self.cost(others, since, until)}")
        self._live.until_training(len(members))
        self.say("another one has taken its place")
        self._settle()

    def kill_the_server(self) -> None:
        names = [member.name for member in self._live.members()]
        server = next(
            line.split()[3].rstrip(",")
            for line in self._live.command("status").splitlines()
            if line.startswith("server:")
        )
        self.say(f"$ kill -KILL {server}    # the server")
        since = time.monotonic()
        os.kill(int(server), signal.SIGKILL)
        until = self._live.until_stepping(names, since, steps=20)
        self.more(f"pause of the training: {self.cost(names, since, until)}")
        self.types("list", "-o", "wide")

    def end(self, picture: str) -> None:
        self.types("top", "node")
        self.types("logs", NAME, "--tail", "4")
        self._live.end()
        self.types("wait", NAME, "--timeout", "1m")
        self.types("audit", NAME)
        self.types("plot", NAME, "-o", picture)
        self.types("delete", NAME)
        self.types("down")
        self._live.until("everything had ended", lambda: not self._live.left_over())
        self.say("no process is left")


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    print("Midflight: three simulated nodes on this machine, one job of 2 to 4 workers\n")
    try:
        with Live() as live:
            story = Story(live)
            story.start()
            story.scale("scaleout", 2)
            story.kill_a_worker()
            story.let_one_hang()
            story.kill_the_server()
            story.scale("scalein", 2)
            story.end(sys.argv[1] if len(sys.argv) > 1 else str(live.folder / "flight.svg"))
    except KeyboardInterrupt:
        print("\ninterrupted; nothing is left running", file=sys.stderr)
        return 130
    except (DemoError, ValueError) as error:
        print(f"\ndemo: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
