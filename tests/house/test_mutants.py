"""The mutation script finds weak tests, and its table in docs/mutants.md is that of docs/papers.md, without survivors."""

import json
import subprocess
import sys

import pytest

from tests import mutants
from tests.support import faults, papers
from tests.support.paths import ROOT

WEAK = """
from qddot.spatial.rotation import cross

def test_weak():
    assert len(cross((2.0, 3.0, 5.0), (7.0, 11.0, 13.0))) == 3

def test_crash():
    {(-16.0, 9.0, 1.0): "a KeyError for anything else"}[cross((2.0, 3.0, 5.0), (7.0, 11.0, 13.0))]
"""

RUN = """
import json, sys
sys.path[:0] = [{root!r}, {folder!r}]
from tests import mutants
papers = mutants._prepared()
rows = [
    ("(1)", "`qddot.spatial.rotation.cross`", "`tests/spatial/test_spatial.py::test_twist_matrix`"),
    ("(2)", "`qddot.spatial.rotation.cross`", "`{weak}::test_weak`"),
    ("(3)", "`qddot.spatial.rotation.cross`", "`{weak}::test_weak`, `tests/spatial/test_spatial.py::test_twist_matrix`"),
    ("(4)", "`qddot.spatial.rotation.cross`", "`{weak}::test_crash`"),
    ("(5)", "`qddot.algorithms.perturbation.Change`", "`{weak}::test_weak`"),
]
papers.tables = lambda: {{"Kim 2012": [papers.Row((e,), "", f, t) for e, f, t in rows]}}
json.dump(mutants.run("", 3, 2), open({out!r}, "w"))
"""


@pytest.mark.slow
def test_weak_tests_are_found(tmp_path):
    """Rows with a strong test, a weak one, both, one that only fails by an exception, and a function without arithmetic."""
    weak, out = tmp_path / "test_weak.py", tmp_path / "out.json"
    weak.write_text(WEAK)
    script = RUN.format(root=str(ROOT), folder=str(tmp_path), weak=weak, out=str(out))
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    strong, blind, both, crash, nothing = (mutants.Result(*row) for row in json.loads(out.read_text()))
    assert (strong.made, strong.crashed, strong.missed) == (3, 0, [])
    assert len(blind.missed) == blind.made == 3
    assert all("a[" in says for says in blind.missed)
    assert (both.crashed, both.missed) == (0, [])
    assert (crash.made, crash.crashed) == (3, 3)
    assert crash.missed == ["qddot.spatial.rotation.cross: no assertion fails"]
    assert nothing.missed == ["qddot.algorithms.perturbation.Change: no fault could be made"]


@pytest.mark.parametrize(
    ("comment", "paper", "found"),
    [
        ("# (13)", "Saha 1999", {"(13)"}),
        ("# (A13), (113) and L13", "Lin 1991", {"(A13)", "(113)"}),
        ("# (68) (69)", "Kim 2012", {"(68)", "(69)"}),
        ("# (81)-(83)", "Kim 2012", {"(81)", "(82)", "(83)"}),
        ("# (23a), then the rest", "Saha 1999", {"(23a)"}),
        ("# (67), Featherstone & Orin (21)", "Kim 2012", {"(67)"}),
        ("# Kim (67), Featherstone & Orin (21)", "Featherstone & Orin 2000", {"(21)"}),
        ("# (A6), [s×][s×] by Lin's (21)", "Lin 1991", {"(A6)", "(21)"}),
        ("# f(3) and x.S(4)", "Kim 2012", set()),
        ("# Linear in (3)", "Kim 2012", {"(3)"}),
    ],
)
def test_equations_that_a_comment_cites(comment, paper, found):
    assert faults.cited(paper, comment) == found


def test_faults_are_put_on_the_lines_of_the_equation():
    """Of `composites` in Lin's paper the line with (29) and no other."""
    found = faults.faults("qddot.algorithms.papers.lin.composites", "Lin 1991", ("(29)",), 4)
    assert found
    assert all("p_hat[i], inward(E.T[j], p_hat[j])" in f.says for f in found)
    every = faults.faults("qddot.algorithms.papers.lin.composites", "Lin 1991", ("(1000)",), 100)
    assert len({f.says for f in every}) > 10
    assert [f.code for f in every if f.code == f.owner.__code__] == []


def table():
    """The rows of docs/mutants.md: paper, then the cells."""
    out, heading = [], ""
    for line in (ROOT / "docs" / "mutants.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            heading = line[3:]
        elif line.startswith("|") and not line.startswith(("| equation", "|---")):
            out.append((heading, *(cell.strip() for cell in line.strip("|").split("|"))))
    return out


def test_the_table_is_that_of_the_papers():
    """After a change of docs/papers.md: `python -m tests.mutants --write`."""
    expected = [
        (paper, mutants.shown(row), row.function, row.test)
        for paper, rows in papers.tables().items()
        for row in rows
        if row.function != papers.OPEN
    ]
    assert [row[:4] for row in table()] == expected


def test_the_table_has_no_survivor():
    for *row, made, crashed, missed in table():
        assert int(made) > int(crashed), row
        assert missed == "none", row


def test_reasons_of_equivalent_faults_are_still_needed():
    """Each names a fault that can be made."""
    for (name, says), reason in faults.EQUIVALENT.items():
        assert reason
        assert says in {place.says for f in faults._functions(faults._find(name)) for place in faults._places(f)}, name


def test_faulty_numbers_keep_their_kind():
    from qddot.spatial import Motion
    from qddot.spatial.joint_blocks import Vector

    assert faults.off(3) == 4
    assert isinstance(faults.off(Vector((1.0, 2.0))), Vector)
    moved = faults.off(Motion((1.0, 0.0, 0.0), (0.0, 0.0, 2.0)))
    assert isinstance(moved, Motion)
    assert moved.v == pytest.approx((0.01, 0.01, 2.03))
