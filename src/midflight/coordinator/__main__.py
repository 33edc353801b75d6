"""`python -m midflight.coordinator`: started, and started again if need be, by the launcher."""

import sys

from midflight.coordinator.main import main

sys.exit(main())
