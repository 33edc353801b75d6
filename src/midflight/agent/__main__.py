"""`python -m midflight.agent`: what runs on a bare node or in a training image."""

import sys

from midflight.agent.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
