"""How much memory this process has taken."""

import sys

import pytest


def resident() -> int:
    """The most bytes that the process has had at a time; the test is skipped where nobody says."""
    resource = pytest.importorskip("resource", reason="resource gives the size of the process, and Windows has none")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
