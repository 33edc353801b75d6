"""`python -m midflight.operator`."""

import sys

from midflight.operator.main import run_directly

sys.exit(run_directly())
