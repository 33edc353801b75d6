"""`python -m midflight.torchrun`: torchrun's command line on Midflight's elastic core."""

import sys

from midflight.compat.torchelastic.main import main

if __name__ == "__main__":
    sys.exit(main())
