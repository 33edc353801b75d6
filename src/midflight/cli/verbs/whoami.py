"""`midflight whoami`: the user whose jobs these are, as JSON."""

import hashlib
import json
import os
import pwd
from collections.abc import Sequence

from midflight.cli import flags
from midflight.cli.cluster import kubernetes


def main(argv: Sequence[str]) -> int:
    parser().read(argv)
    if (cluster := kubernetes()) is not None:
        user = cluster.whoami()
        number = hashlib.md5(user.name.encode(), usedforsecurity=False).hexdigest()
        print(_as_json(user.name, number, user.admin))
    else:
        uid = os.getuid()
        print(_as_json(_name(uid), str(uid), uid == 0))
    return 0


def _as_json(name: str, number: str, admin: bool) -> str:
    return json.dumps({"Name": name, "Id": number, "IsAdminUser": admin})


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # a user that is known by number only, as in many containers
        return str(uid)


def parser() -> flags.VerbParser:
    return flags.VerbParser("whoami", "Shows which user's jobs these are.")
