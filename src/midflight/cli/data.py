"""`midflight data list`: volumes that can be mounted. On one machine there are none to list."""

from collections.abc import Sequence

from midflight.cli import flags, messages, output
from midflight.cli.tables import table

_COLUMNS = ("NAME", "ACCESSMODE", "DESCRIPTION", "OWNER", "AGE")


def main(argv: Sequence[str]) -> int:
    options = parser().read(argv)
    if not output.data(options.output, [], []):
        namespaces = ("NAMESPACE",) if options.all_namespaces else ()
        print(table((_COLUMNS[0], *namespaces, *_COLUMNS[1:]), []))
    messages.info("this machine has no volume claims: jobs read its folders as they are")
    return 0


def parser() -> flags.VerbParser:
    made = flags.VerbParser("data", "Lists the volumes that jobs can mount.")
    made.add_argument("action", choices=("list",), help="the only one there is")
    made.renamed = {"--allNamespaces": "--all-namespaces"}
    flags.switch(made, "-A", "--all-namespaces", help="those of all namespaces")
    output.add(made)
    return made
