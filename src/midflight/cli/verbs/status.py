"""`midflight status RUN|JOB`: asks the coordinator, or, when it does not answer, the store.

Without a name it is the server that is asked.
"""

from collections.abc import Sequence

from midflight.cli import flags, output, screen
from midflight.cli.cluster import connect_if_running
from midflight.cli.output import table
from midflight.cli.runs import current_status, find_training, run_in_pod
from midflight.flight import amounts
from midflight.printable import printable
from midflight.protocol import codec
from midflight.protocol.messages import Status


def main(argv: Sequence[str]) -> int:
    options = parser().read(argv)
    if options.run is None:
        return server_status(options.output)
    words = ("status", options.run, "-o", options.output or "wide")
    if (code := run_in_pod(options.said_namespace, options.run, words)) is not None:
        return code
    status = current_status(find_training(options.run, options.said_namespace).folder)
    if not output.data(options.output, codec.as_view(status), [status.name]):
        print(as_text(status))
    return 0


def server_status(form: str) -> int:
    client = connect_if_running()
    if client is None:
        if not output.data(form, None, []):
            print("no server is running; any verb that needs one starts it")
        return 0
    server = client.status()
    if output.data(form, server, [server["home"]]):
        return 0
    jobs = ", ".join(f"{count} {phase}" for phase, count in server["jobs"].items()) or "none"
    process = f", process {server['pid']}, since {server['startedAt']}" if server["pid"] else ""
    lines = {
        "server": f"{server['version']}{process}",
        "home": server["home"],
        "nodes": server["nodes"],
        "jobs": jobs,
    }
    print("\n".join(f"{key + ':':<12}{value}" for key, value in lines.items()))
    return 0


def as_text(status: Status) -> str:
    head = {
        "run": status.name,
        "phase": screen.paint(status.phase),
        "detail": status.detail or "-",
        "generation": status.generation,
        "step": status.step,
        "members": f"{len(status.members)} of {status.wanted} wanted",
        "limits": f"{status.min_np} to {status.max_np}",
        "resets": status.resets,
    }
    if status.steps_per_second:
        head["speed"] = amounts.speed(status.steps_per_second, status.samples_per_second)
    if status.logged:
        head["logged"] = printable(amounts.values(status.logged))
    members = [
        (m.name, "-" if m.rank is None else m.rank, m.host, m.pid or "-", m.step, m.state)
        for m in status.members
    ]
    hosts = [
        (h.name, h.slots, "yes" if h.connected else "no", f"{h.cooling:.0f}" if h.cooling else "-")
        for h in status.hosts
    ]
    blocks = ["\n".join(f"{key + ':':<12}{value}" for key, value in head.items())]
    if members:
        blocks.append(table(("MEMBER", "RANK", "HOST", "PID", "STEP", "STATE"), members))
    if hosts:
        blocks.append(table(("HOST", "SLOTS", "CONNECTED", "COOLING (S)"), hosts))
    return "\n\n".join(blocks)


def parser() -> flags.VerbParser:
    made = flags.VerbParser("status", "Shows how the server, a run or a job that trains is doing.")
    made.add_argument(
        "run",
        metavar="RUN|JOB",
        nargs="?",
        help="a run, or a job (default: the server)",
    )
    output.add(made)
    return made
