"""`midflight operator install`: puts the operator on a cluster, or another version of it.

What is installed is decided in `kubernetes/install/manifests.py` and applied piece by piece, the
kinds first. Running jobs are not touched. With `--dry-run` the manifests are printed, and no
cluster is needed.
"""

import argparse
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from midflight.arguments import count_from
from midflight.cli import flags, messages, output
from midflight.cli.operators import add_timeout, connect, print_each, verb
from midflight.cli.progress import Progress
from midflight.deadlines import NEW_KINDS
from midflight.errors import Refused
from midflight.protocol import codec

if TYPE_CHECKING:
    from midflight.kubernetes.api.connection import Connection
    from midflight.kubernetes.install.apply import Done
    from midflight.kubernetes.install.inspection import Operator


Objects = list[dict[str, Any]]


def main(argv: Sequence[str]) -> int:
    from midflight.kubernetes.install import manifests
    from midflight.kubernetes.operator import pod_options

    options = parser().read(argv)
    namespace = options.said_namespace or options.namespaced or manifests.NAMESPACE
    image = options.image or manifests.IMAGE
    operator = manifests.operator(
        namespace, image, options.replicas, options.namespaced, pod_options.words(options)
    )
    if options.dry_run:
        _show([*manifests.kinds(), *operator], options.output)
        return 0
    done = install(connect(options), namespace, operator, options)
    output.data(options.output, [codec.as_view(one) for one in done], (one.what for one in done))
    messages.info(
        f"The operator is installed in {namespace}; see `{messages.program()} operator status`"
    )
    return 0


def install(
    connection: "Connection", namespace: str, operator: Objects, options: argparse.Namespace
) -> "list[Done]":
    from midflight.kubernetes.install import apply, inspection, removal

    scope, form = options.namespaced, options.output
    connection.version()  # or it is too old, before anything is changed
    former = _former(inspection.operators(connection, namespace), namespace, scope)
    kinds = _kinds(connection, options.take_over)
    operator = _placed(connection, operator)
    _wait("kinds", lambda: apply.being_deleted(connection, kinds), NEW_KINDS)
    done = print_each(apply.apply(connection, kinds, options.take_over), form)
    _wait("kinds", lambda: apply.not_served(connection, kinds), NEW_KINDS)
    done += print_each(apply.apply(connection, operator, options.take_over), form)
    for old in dict.fromkeys((scope, former.scope if former else scope)):
        done += print_each(removal.prune(connection, namespace, old, operator), form)
    if options.wait:
        _wait("operator", lambda: inspection.not_ready(connection, namespace), options.timeout)
    return done


def _former(operators: "Iterable[Operator]", namespace: str, scope: str) -> "Operator | None":
    """The one that is there already; two that run the same jobs are refused."""
    found = None
    for one in operators:
        if one.namespace == namespace:
            found = one
        elif not scope or not one.scope or scope == one.scope:
            raise Refused(
                f"an operator in {one.namespace} runs the jobs of "
                f"{one.scope or 'all namespaces'} already, and a second one would run them too; "
                f"remove it first: `{messages.program()} operator uninstall -n {one.namespace} "
                "--keep-jobs`"
            )
    return found


def _kinds(connection: "Connection", take_over: bool) -> Objects:
    """Without PyTorchJob where it is somebody else's, and stays so."""
    from midflight.kubernetes.install import inspection, kubeflow, manifests
    from midflight.kubernetes.install.rbac import PYTORCH_CRD

    kinds = manifests.kinds()
    if not inspection.stands_back(connection):
        return kinds
    if take_over:
        kubeflow.check_stopped(connection)
        if what := kubeflow.left_alone(connection):
            messages.info(what)
        return kinds
    messages.info(
        f"{PYTORCH_CRD} is there already and not ours (Kubeflow's, as a rule): it is left alone, "
        "and the operator stands back from PyTorchJobs; --take-over would take it over"
    )
    return [one for one in kinds if one["metadata"]["name"] != PYTORCH_CRD]


def _placed(connection: "Connection", operator: Objects) -> Objects:
    """A namespace that somebody else has made is marked and not claimed."""
    from midflight.kubernetes.install import manifests
    from midflight.kubernetes.resources.labels import is_ours

    space, *others = operator
    there = connection.find_object(space)
    if there is not None and "deletionTimestamp" in there["metadata"]:
        name = space["metadata"]["name"]
        raise Refused(f"the namespace {name} is being deleted; try again when it is gone")
    if there is not None and not is_ours(there):
        space = manifests.marked(space["metadata"]["name"])
    return [space, *others]


def _wait(what: str, look: Callable[[], str], seconds: float) -> None:
    from midflight.kubernetes.install import apply

    with Progress(f"waiting for the {what}") as progress:
        apply.until(look, seconds, lambda text: setattr(progress, "text", text))


def _show(manifests: Objects, form: str) -> None:
    """YAML as kubectl reads it, unless something else was asked for."""
    from midflight.kubernetes.api.paths import word

    whole = {"apiVersion": "v1", "kind": "List", "items": manifests}
    if form in ("json", "name"):
        output.data(form, whole, (word(one) for one in manifests))
        return
    import yaml

    print(yaml.safe_dump_all(manifests, sort_keys=False, allow_unicode=True, width=100), end="")


def parser() -> flags.VerbParser:
    from midflight.kubernetes.operator import pod_options

    made = verb("install", "Installs the operator on a cluster, or upgrades it.")
    made.add_argument(
        "--image", default="", help="image of the operator (default midflight:VERSION)"
    )
    made.add_argument(
        "--replicas",
        type=count_from(1),
        default=2,
        help="replicas; one leads, the others stand by (default 2)",
    )
    made.add_argument(
        "--namespaced",
        metavar="NAME",
        default="",
        help="run only the jobs of this namespace, without rights in others",
    )
    pod_options.add_options(made)
    flags.switch(made, "--dry-run", help="print the manifests and change nothing")
    flags.switch(
        made,
        "--take-over",
        help="take over definitions of another operator, such as et-operator or Kubeflow's",
    )
    flags.switch(made, "--wait", help="wait until it is ready")
    add_timeout(made, "how long to wait")
    return made
