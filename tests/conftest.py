"""Kernels compiled by the tests are kept in a folder of their own, shared by the workers of one machine."""

import os
import tempfile
from pathlib import Path

os.environ.setdefault("QDDOT_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"qddot-test-cache-{os.getuid()}"))
