"""Parts of a study, computed into folders of their own, become one."""

from __future__ import annotations

import os
from pathlib import Path

from qddot.errors import StudyError
from qddot.study.store import Store

PARTS = "part-*-of-*"


def parts(directory: str | os.PathLike[str]) -> list[Store]:
    """The parts that are in the folder of a study."""
    return [store for path in sorted(Path(directory).glob(PARTS)) if (store := Store(path)).exists]


def merge(directory: str | os.PathLike[str]) -> Store:
    """Copies every piece of every part that has its receipt into the folder itself. Called again it adds what is new.

    Parts need not be complete: `Study.run` computes what is missing.
    """
    found = parts(directory)
    if not found:
        raise StudyError(f"{directory}: there are no parts of a study in it (folders {PARTS})")
    first = found[0]
    total = int(first.identity["space"]["samples"])
    whole = Store(directory, 0, total)
    with whole.writing(first.identity):
        for part in found:
            if part.identity != first.identity:
                raise StudyError(f"{part.directory} and {first.directory} are of different studies; move one away")
            for outcome in part.receipts():
                there = (whole.done[:, 0] <= outcome.first) & (outcome.first + outcome.count <= whole.done[:, 1])
                if not there.any():
                    whole.add(outcome)
        whole.finish()
    return whole
