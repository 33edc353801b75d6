"""`midflight context`: where the verbs go, and why; `context use` chooses it.

What is said with `--config` wins over it, and it wins over KUBECONFIG.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from midflight.arguments import offer
from midflight.cli import common_flags, contexts, flags, output
from midflight.cli.contexts import IN_CLUSTER, KUBERNETES, LOCAL, PLACES, Stored
from midflight.cli.output import fields
from midflight.controller.spec import DEFAULT_NAMESPACE
from midflight.errors import UsageError
from midflight.home import home

ACTIONS = ("show", "use", "list")


def main(argv: Sequence[str]) -> int:
    options = parser().read(argv)
    if options.action == "use":
        _use(options.where, options.config, options.said_namespace)
    elif options.where:
        raise UsageError(f"`context {options.action}` takes no {options.where!r}")
    if options.action == "list":
        return _list(options.output)
    found = shown("" if options.action == "use" else common_flags.config())
    if not output.data(options.output, found, [found["context"] or found["place"]]):
        print(fields({key.title(): value for key, value in found.items() if value}))
    return 0


def _use(where: str, config: str, namespace: str) -> None:
    place, _, context = where.partition(":")
    if place not in PLACES or (context and place != KUBERNETES):
        raise UsageError(
            f"wanted {LOCAL}, {KUBERNETES}, {KUBERNETES}:CONTEXT or {IN_CLUSTER}, "
            f"got {where or 'nothing'!r}"
        )
    if place == LOCAL and (config or namespace):
        raise UsageError("--config and --namespace are for a cluster, and this machine is none")
    stored = Stored(place, context, str(Path(config).absolute()) if config else "", namespace)
    if place != LOCAL:
        contexts.settings(contexts.choose("", stored, os.environ))  # or it says what is wrong
    contexts.write(home(os.environ), stored)


def shown(flag: str) -> dict[str, Any]:
    chosen = contexts.current(flag)
    if chosen.is_local:
        return {"place": LOCAL, "context": "", "why": chosen.why}
    settings = contexts.settings(chosen)
    return {
        "place": chosen.place,
        "context": settings.context,
        "namespace": chosen.namespace or settings.namespace or DEFAULT_NAMESPACE,
        "server": settings.server,
        "source": settings.source,
        "why": chosen.why,
    }


def _list(form: str) -> int:
    from midflight.kubernetes.api import kubeconfig

    given = common_flags.config() or os.environ.get("KUBECONFIG", "")
    found = kubeconfig.contexts(kubeconfig.files(given, Path.home()))
    names = [LOCAL, *(f"{KUBERNETES}:{name}" for name in found)]
    if not output.data(form, names, names):
        print("\n".join(names))
    return 0


def parser() -> flags.VerbParser:
    made = flags.VerbParser(
        "context", "Shows or chooses where jobs run: this machine or a cluster."
    )
    made.add_argument(
        "action", nargs="?", choices=ACTIONS, default="show", help="what to do (default show)"
    )
    where = made.add_argument(
        "where",
        metavar="WHERE",
        nargs="?",
        default="",
        help=f"for use: {LOCAL}, {KUBERNETES}, {KUBERNETES}:CONTEXT or {IN_CLUSTER}",
    )
    offer(where, (LOCAL, KUBERNETES, IN_CLUSTER))
    output.add(made)
    return made
