"""What people type, verb by verb: the end of each `--help`. A test has every verb read its own."""

from midflight.cli import messages

FIRST = (
    "run -np 3 --min-np 1 --max-np 9 --name mine -- python train.py",
    "resize mine --to 5",
    "submit etjob --name digits --workers 3 --max-workers 9 'python train.py'",
    "scaleout etjob --name digits --count 2 --wait",
)
EXAMPLES: dict[str, tuple[str, ...]] = {
    "submit": (
        "submit etjob --name digits --workers 3 --min-workers 1 'python train.py'",
        "submit pytorchjob --name fixed --workers 2 --gpus 1 --wait -- python train.py --lr 0.1",
        "submit -f job.yaml --dry-run",
    ),
    "list": ("list", "list -A -o wide"),
    "get": ("get digits", "get digits -o json"),
    "logs": ("logs digits --follow", "logs digits -i digits-worker-1 --tail 100"),
    "scaleout": ("scaleout etjob --name digits --count 2 --wait",),
    "scalein": ("scalein etjob --name digits --pod-names digits-worker-1 --wait",),
    "resize": (
        "resize digits --to 5          # workers of a job",
        "resize mine --add 1 --remove-member m2    # members of a run",
    ),
    "wait": ("wait digits --for finished --timeout 1h",),
    "delete": ("delete digits fixed",),
    "prune": ("prune --since 24h -A",),
    "top": ("top node -d", "top job digits"),
    "events": ("events digits",),
    "path": ("path digits digits-worker-0",),
    "attach": ("attach digits -- nvidia-smi",),
    "chaos": (
        "chaos kill digits digits-worker-0",
        "chaos monkey mine --seed 7 --for 10m --actions kill,stop,resize",
    ),
    "context": ("context", "context use kubernetes:staging"),
    "node": ("node list", "node drain node-2"),
    "up": ("up --nodes 3 --gpus-per-node 4",),
    "down": ("down --jobs",),
    "status": ("status", "status mine -o json"),
    "operator": ("operator install --image registry.example/midflight:1 --dry-run",),
    "run": (
        "run -np 3 -- python train.py",
        "run --name mine -np 3 --min-np 1 --max-np 9 --warm 1 -- python train.py --lr 0.1",
        "run -H node-a:4,node-b:4 -- python train.py",
    ),
    "runs": ("runs", "runs -o json"),
    "stop": ("stop mine",),
    "audit": ("audit mine", "audit ./ledgers --samples 60000"),
    "plot": ("plot mine", "plot digits -o digits.svg"),
    "report": ("report mine", "report digits -o digits.html"),
    "agent": (
        "agent --join node-a:29400 --token-file token --name node-b --slots 4",
    ),
    "shell": ("shell -- horovodrun -np 2 --min-np 1 --max-np 4 python train.py",),
    "data": ("data list",),
    "whoami": ("whoami",),
    "completion": ("completion bash", "completion zsh"),
    "version": ("version",),
}  # fmt: skip


def show_examples(lines: tuple[str, ...]) -> str:
    return "\n".join(["examples:", *(f"  {messages.program()} {line}" for line in lines)])
