"""`python -m qddot`."""

import sys

from qddot.cli import main

sys.exit(main())
