"""`midflight whoami`: the user whose jobs these are, as JSON."""

import json
import os
import pwd
from collections.abc import Sequence

from midflight.cli import flags


def main(argv: Sequence[str]) -> int:
    parser().read(argv)
    uid = os.getuid()
    print(json.dumps({"Name": _name(uid), "Id": str(uid), "IsAdminUser": uid == 0}))
    return 0


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # a user that is known by number only, as in many containers
        return str(uid)


def parser() -> flags.VerbParser:
    return flags.VerbParser("whoami", "Shows which user's jobs these are.")
