"""`python -m midflight.cli`: the command line where its script is not on the path."""

import sys

from midflight.cli.main import main

sys.exit(main())
