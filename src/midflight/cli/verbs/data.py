"""`midflight data list`: volumes that can be mounted. On one machine there are none to list."""

from collections.abc import Sequence
from typing import Any, TypedDict

from midflight.cli import flags, messages, output
from midflight.cli.cluster import kubernetes
from midflight.cli.output import table

_COLUMNS = ("NAME", "ACCESSMODE", "DESCRIPTION", "OWNER", "AGE")


class VolumeView(TypedDict):
    """A claim, as Arena's users label it."""

    name: str
    namespace: str
    accessMode: str
    description: str
    owner: str
    createTime: str


def main(argv: Sequence[str]) -> int:
    options = parser().read(argv)
    cluster = kubernetes()
    found: list[VolumeView] = []
    if cluster is not None:
        found = [view(claim) for claim in cluster.claims(options.scope)]
    if not output.data(options.output, found, (each["name"] for each in found)):
        print(as_text(found, options.all_namespaces))
    if cluster is None:
        messages.info("this machine has no volume claims: jobs read its folders as they are")
    return 0


def view(claim: dict[str, Any]) -> VolumeView:
    meta = claim["metadata"]
    notes = meta.get("annotations") or {}
    return {
        "name": meta["name"],
        "namespace": meta["namespace"],
        "accessMode": ",".join(claim["spec"].get("accessModes") or ()),
        "description": notes.get("description", ""),
        "owner": notes.get("owner", ""),
        "createTime": meta["creationTimestamp"],
    }


def as_text(found: Sequence[VolumeView], namespaces: bool) -> str:
    header = (_COLUMNS[0], *(("NAMESPACE",) if namespaces else ()), *_COLUMNS[1:])
    rows = [
        (
            each["name"],
            *((each["namespace"],) if namespaces else ()),
            each["accessMode"],
            each["description"],
            each["owner"],
            output.age(each["createTime"]),
        )
        for each in found
    ]
    return table(header, rows)


def parser() -> flags.VerbParser:
    made = flags.VerbParser("data", "Lists the volumes that jobs can mount.")
    made.add_argument("action", choices=("list",), help="the only action")
    flags.add_all_namespaces(made)
    output.add(made)
    return made
