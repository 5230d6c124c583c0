"""`python -m qddot`."""

import sys

from qddot.cli.main import main

sys.exit(main())
