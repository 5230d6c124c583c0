"""docs/papers.md keeps its promises: what it names exists, and no equation is forgotten or listed twice."""

from __future__ import annotations

import ast
import functools
import inspect
import re

import pytest

from tests.support.papers import OPEN, names, numbered, page, resolve, rows, tables
from tests.support.paths import ROOT

PAPERS = {
    "Featherstone & Orin 2000": [
        *numbered(1, 29),
        "Listing: velocities and accelerations",
        "Listing: joint forces",
        "Listing: RNEA",
        "Listing: CRBA",
    ],
    "Kim 2012": [
        *numbered(1, 92),
        *(f"Table {k}" for k in range(1, 8)),
        *(f"Lemma {k}" for k in (1, 2, 3)),
        *(f"Corollary {k}" for k in (1, 2)),
    ],
    "Saha 1999": [
        *(f"({k})" for k in range(1, 32) if k not in (6, 11, 23)),
        *(f"({k}{part})" for k in (6, 11, 23) for part in "ab"),
    ],
    "Lin 1991": [*numbered(1, 67), *numbered(1, 15, "A"), "Table I", "Table II", "Fig. 3", "Fig. A1"],
}
ERRATA = {"F": 11, "K": 19, "S": 15, "L": 24}


def test_every_paper_has_its_table():
    assert list(tables()) == list(PAPERS)


@pytest.mark.parametrize("paper", PAPERS)
def test_every_equation_has_exactly_one_row(paper):
    listed = [e for row in tables()[paper] for e in row.equations]
    twice = sorted({e for e in listed if listed.count(e) > 1})
    assert not twice, f"listed twice: {twice}"
    missing = [e for e in PAPERS[paper] if e not in listed]
    assert not missing, f"without a row: {missing}"
    invented = [e for e in listed if e.startswith("(") and e not in PAPERS[paper]]
    assert not invented, f"the paper has no {invented}"


def test_rows_are_built_or_open():
    """Not half of each; and a range of equations is for what one function covers."""
    for row in rows():
        assert row.says
        assert (row.function == OPEN) == (row.test == OPEN), f"{row.equations} is both built and open"
        assert row.function != OPEN or len(row.equations) == 1, f"{row.equations} are open: a row each"


def test_functions_exist():
    for row in rows():
        if row.function == OPEN:
            continue
        for name in names(row.function):
            thing = resolve(name)
            found = callable(thing) or isinstance(thing, property | functools.cached_property)
            assert found, f"{name} of {row.equations} is no function"


def test_functions_are_the_ones_that_compute():
    """A name that is only imported or inherited, or a method without a body, would lead the reader astray."""
    for row in rows():
        for name in names(row.function) if row.function != OPEN else ():
            thing = resolve(name)
            thing = thing.fget if isinstance(thing, property) else getattr(thing, "func", thing)
            own = f"{thing.__module__}.{thing.__qualname__}"
            assert name == own, f"{name} of {row.equations} is {own}"
            assert isinstance(thing, type) or "NotImplementedError" not in inspect.getsource(thing), (
                f"{name} computes nothing"
            )


@functools.cache
def functions_of(file):
    """The names of the functions at the top level of a file."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_tests_exist():
    for row in rows():
        if row.test == OPEN:
            continue
        for name in names(row.test):
            file, separator, test = name.partition("::")
            assert re.fullmatch(r"tests/(\w+/)?test_\w+\.py", file), f"{name!r} is no id of a test"
            assert separator, f"{name!r} is no id of a test"
            assert (ROOT / file).is_file(), f"{name}: there is no {file}"
            assert test.startswith("test_"), f"{name!r} is no id of a test"
            assert test in functions_of(file), f"{file} has no {test}"


def test_every_correction_is_named():
    named = set(re.findall(r"\b[FKSL]\d+\b", page()))
    assert named == {f"{letter}{k}" for letter, count in ERRATA.items() for k in range(1, count + 1)}
