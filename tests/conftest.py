"""Kernels compiled by the tests are kept in a folder with a key of their own, shared by the workers of one machine."""

import os
import tempfile
from pathlib import Path

_FOLDER = Path(tempfile.gettempdir()) / f"qddot-test-cache-{os.getuid()}"
os.environ.setdefault("QDDOT_CACHE_DIR", str(_FOLDER))
os.environ.setdefault("QDDOT_CACHE_KEY", f"{_FOLDER}.key")
