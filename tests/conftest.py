"""Kernels compiled by the tests are kept in a folder with a key of their own, shared by the workers of one machine."""

import os
import tempfile
from pathlib import Path

import pytest
from targets import WAYS, restricted

USER = os.getuid() if hasattr(os, "getuid") else "user"  # Windows has a folder for temporary files for each user
_FOLDER = Path(tempfile.gettempdir()) / f"qddot-test-cache-{USER}"
os.environ.setdefault("QDDOT_CACHE_DIR", str(_FOLDER))
os.environ.setdefault("QDDOT_CACHE_KEY", f"{_FOLDER}.key")

_LANES = os.environ.get("QDDOT_TEST_LANES")


@pytest.fixture(autouse=True, scope="session")
def _lanes_of_this_run():
    with restricted(int(_LANES) if _LANES else None):
        yield


@pytest.fixture(params=WAYS, ids=lambda way: f"{way[0] or 'own'}-lanes-{way[1]}-loader")
def way(request):
    """A test that asks for it runs in each of these ways."""
    with restricted(*request.param):
        yield request.param
