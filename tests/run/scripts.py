"""Small scripts that know nothing of Midflight, as command lines."""

import sys


def python(code: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code, *arguments)


RANK = "import os; print('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])"
FAIL = "import sys; sys.exit('out of luck')"
WAIT = "import os, signal; print('up', os.environ['RANK']); signal.pause()"
STUBBORN = "import signal; signal.signal(15, signal.SIG_IGN); print('up'); signal.pause()"
# Ends when somebody has opened the pipe for writing and closed it again.
UNTIL_RELEASED = "import os, sys; print('up', os.environ['RANK']); open(sys.argv[1]).read()"
