"""horovodrun as a person calls it: by its name, in `midflight shell`."""

import sys

from tests.run.site import Launched, Site


def in_shell(site: Site, *command: str) -> Launched:
    words = [sys.executable, "-P", "-m", "midflight.cli.main", "shell", "--", *command]
    return Launched(words, site.env, site.folder)


def horovodrun(site: Site, *words: str) -> Launched:
    return in_shell(site, "horovodrun", *words)
