"""`python -m midflight.compat.horovod.runner`: horovodrun."""

import sys

from midflight.compat.horovod.runner.launch import main

sys.exit(main())
