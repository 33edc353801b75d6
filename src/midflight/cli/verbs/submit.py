"""`midflight submit KIND`: makes a spec of flags and a file, and gives it to the server.

On a cluster it becomes objects instead, and `--dry-run` shows these.
"""

import argparse
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from midflight import durations
from midflight.arguments import Parser
from midflight.cli import (
    common_flags,
    contexts,
    flags,
    job_types,
    messages,
    output,
    submit_flags,
)
from midflight.cli.cluster import connect, is_kubernetes
from midflight.cli.long_poll import until
from midflight.cli.submit_spec import Place, given, spec_of
from midflight.controller.spec import DEFAULT_NAMESPACE, Spec, shown
from midflight.errors import JobFailed, UsageError
from midflight.protocol import codec
from midflight.protocol.cluster_api import ClusterApi
from midflight.protocol.views import JobView


def main(argv: Sequence[str]) -> int:
    options, kind, file = _read(argv)
    if not (options.command or options.rest or file.get("command")):
        parser_of(kind).print_help()
        raise UsageError("not found command args")
    if not (options.name or file.get("name")):
        raise UsageError('required flag(s) "name" not set')
    from midflight.controller.spec_check import check

    on_cluster = is_kubernetes()
    spec = spec_of(options, kind, file, Place(Path.cwd(), Path.home(), os.environ, on_cluster))
    check(spec)
    if options.dry_run:
        if on_cluster:
            _show_objects(spec, options.output)
        else:
            print(output.as_yaml(as_file(spec)), end="")
        return 0
    return _submit(spec, options)


def _read(argv: Sequence[str]) -> tuple[argparse.Namespace, str, dict[str, Any]]:
    """The options, the kind of job and what a job file says."""
    kinds = " or ".join(f"{kind} ({alias})" for kind, alias in job_types.HERE.items())
    rest = common_flags.take_more(argv)
    if not rest:
        raise UsageError(f"wanted a kind of job, {kinds}, or -f JOB.YAML; got nothing")
    if rest[0] in ("-h", "--help"):
        parser().parse_args(rest[:1])
    kind = "" if rest[0].startswith("-") else job_types.to_submit(rest.pop(0))
    options = parser_of(kind).read(rest)
    file: dict[str, Any] = {}
    if options.file:
        from midflight.cli import job_file

        file = job_file.read(options.file)
    if kind and file.get("kind", kind) != kind:
        raise UsageError(f"{options.file} describes a {file['kind']}, but {kind} was asked for")
    kind = kind or file.get("kind", "")
    if not kind:
        raise UsageError(f"wanted a kind of job, {kinds}, here or as `kind:` in the file; got none")
    return options, kind, file


def as_file(spec: Spec) -> dict[str, Any]:
    """What differs from the defaults, as a job file would say it, with nothing secret in it."""
    usual = codec.encode(Spec(spec.kind, "", ""))
    values = {
        key: value
        for key, value in codec.encode(shown(spec)).items()
        if key in ("kind", "name", "command", "workers") or value != usual[key]
    }
    if "container" in values:
        inner = usual["container"]
        values["container"] = {k: v for k, v in values["container"].items() if v != inner[k]}
    return values


def _show_objects(spec: Spec, form: str) -> None:
    """As YAML for `kubectl apply -f -`, or as a JSON list. Nothing is asked of the cluster."""
    from midflight.kubernetes.api import paths, user
    from midflight.kubernetes.verbs import submit

    settings = contexts.settings(contexts.current(common_flags.config()))
    owner = user.by_credentials(settings)
    made = submit.rendered(shown(spec), owner)
    if form == "json":
        whole = {"apiVersion": "v1", "kind": "List", "items": made}
        print(json.dumps(whole, indent=2, ensure_ascii=False))
    elif form == "name":
        print("\n".join(paths.word(obj) for obj in made))
    else:
        print("---\n".join(output.as_yaml(obj) for obj in made), end="")
    if spec.secrets:
        messages.info(f"secrets are hidden: {', '.join(spec.secrets)}")


def _submit(spec: Spec, options: argparse.Namespace) -> int:
    kind, name = spec.kind.value, spec.name
    client = connect()
    created: list[str] = []
    job = client.submit(codec.encode(spec), created.append)
    if not output.data(options.output, job, [name]):
        for each in created or [f"{job_types.RESOURCES[kind]}/{name}"]:
            messages.created(each)
    if not is_kubernetes():
        _note(spec, options, client)
    where = "" if spec.namespace == DEFAULT_NAMESPACE else f" -n {spec.namespace}"
    messages.info(f"The Job {name} has been submitted successfully")
    messages.info(
        f"You can run `{messages.program()} get {name} --type {kind}{where}` "
        "to check the job status"
    )
    return _ended(client, job, options.timeout) if options.wait else 0


def _note(spec: Spec, options: argparse.Namespace, client: ClusterApi) -> None:
    kept = [flag.long for flag in given(options) if flag.field.startswith("container.")]
    if kept:
        verb = "is" if len(kept) == 1 else "are"
        messages.info(
            f"{_listed(kept)} {verb} kept for a cluster; on this machine there are no containers"
        )
    if spec.gpus and all(node["virtual"] for node in client.nodes()):
        messages.info("this machine has no GPUs: CPU slots stand in for --gpus")


def _listed(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _ended(client: ClusterApi, job: JobView, timeout: float) -> int:
    left = (
        f"The Job {job['name']} goes on; `{messages.program()} delete {job['name']}` would end it"
    )
    ended = until(client, job["namespace"], job["name"], "finished", timeout, left)
    if ended is None:
        raise JobFailed(f"the job {job['name']} was deleted before it was over")
    reason = f": {ended['reason']}" if ended["reason"] else ""
    messages.info(f"The Job {job['name']} has ended, {ended['status']}{reason}")
    return 0 if ended["status"] == "SUCCEEDED" else 1


def parser() -> argparse.ArgumentParser:
    """All of it, for help and completion."""
    made = flags.VerbParser("submit", "Submits a job.")
    made.usage = (
        f"{made.prog} KIND --name NAME [flags] COMMAND\n       {made.prog} -f JOB.YAML [flags]"
    )
    kinds = made.add_subparsers(metavar="KIND", title="kinds of jobs", parser_class=Parser)
    for kind, alias in job_types.HERE.items():
        parent = parser_of(kind)
        kinds.add_parser(
            kind,
            aliases=[alias],
            prog=parent.prog,
            parents=[parent],
            add_help=False,
            help=f"see `{parent.prog} --help`",
        )
    return made


def parser_of(kind: str) -> flags.VerbParser:
    """The flags of a job of this kind, and those of the verb itself."""
    made = submit_flags.parser(kind)
    section = made.add_argument_group("this command")
    section.add_argument("-f", "--file", metavar="JOB.YAML", help="a job file; flags override it")
    flags.switch(section, "--dry-run", help="print the spec as YAML and submit nothing")
    flags.switch(section, "--wait", help="wait until it has ended; the exit code says how")
    section.add_argument(
        "--timeout", type=durations.parse, default=0.0, metavar="TIME", help="how long --wait waits"
    )
    output.add(section)
    return made
