"""`python -m midflight.shims COMMAND ...`: a command that finds the old names, in its place."""

import os
import sys

from midflight.shims import environment


def main(words: list[str]) -> int:
    if not words:
        print("midflight.shims: wanted a command to run, got none", file=sys.stderr)
        return 2
    try:
        os.execvpe(words[0], words, {**os.environ, **environment(os.environ)})
    except OSError as error:
        print(f"midflight.shims: cannot run {words[0]}: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126


sys.exit(main(sys.argv[1:]))
