"""`python -m midflight.server`."""

import sys

from midflight.server.main import main

if __name__ == "__main__":
    sys.exit(main())
