"""One file a verb: it parses, calls and prints.

A verb is a module with `main(argv) -> int` and `parser()`. It is loaded only when it is used, so
that no verb pays for another, and imports the machinery of `midflight.cli`, but no other verb. To
add one, write its file and name it in VERBS.
"""

import importlib
from types import ModuleType

# what each does, in the order in which they are listed
VERBS = {
    "submit": "submit a job",
    "list": "list the jobs",
    "get": "show a job, its instances and its scale operations",
    "logs": "print the output of a job",
    "scaleout": "add workers to a running job",
    "scalein": "take workers from a running job",
    "resize": "change the size of a running job or run",
    "wait": "wait until a job runs, has ended or is gone",
    "delete": "delete jobs",
    "prune": "delete jobs that ended a while ago",
    "top": "show the GPUs that nodes and jobs use",
    "events": "show events",
    "path": "print the folder of a job",
    "attach": "run a command where a job runs",
    "chaos": "rehearse a failure",
    "context": "show or choose where jobs run",
    "node": "cordon, drain, lose and bring back nodes",
    "up": "start the server, with simulated nodes if you like",
    "down": "stop the server; jobs keep running",
    "status": "show how the server, or a run, is doing",
    "operator": "run jobs on Kubernetes, or install the operator",
    "run": "run a training script as an elastic job, without a server",
    "runs": "list the runs",
    "stop": "end a run",
    "audit": "prove that every sample was used exactly once",
    "plot": "draw what happened to a run or a job over time",
    "report": "write an HTML file about a run or a job",
    "agent": "join a run as one of its hosts",
    "shell": "start a shell, or a command, that finds horovodrun and the like",
    "data": "list the volumes that jobs can mount",
    "whoami": "show which user you are",
    "completion": "print a completion script for a shell",
    "version": "print the version",
}
ALIASES = {"ls": "list", "log": "logs", "del": "delete"}
COMMANDS_OF_SHELL = ("kungfu-run", "torchrun")  # programs of their own, not verbs
HIDDEN = ("horovodrun", "names")  # for a job's own horovodrun, and for completion scripts


def load(verb: str) -> ModuleType:
    return importlib.import_module(f"midflight.cli.verbs.{verb}")
