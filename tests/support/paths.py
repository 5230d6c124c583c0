"""Where things are."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
GOLDEN = TESTS / "golden"


def file_of(name: str) -> Path:
    """The file of tests with this name, in whichever folder."""
    (found,) = TESTS.rglob(name)
    return found
