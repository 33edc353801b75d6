"""`python -m midflight.run`: the same as `midflight run`, where only the package is installed."""

import sys

from midflight.run.main import main

sys.exit(main())
