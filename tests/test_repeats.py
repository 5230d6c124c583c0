"""Equal stretches of code: found where they are, computed by one function, and to the same bits."""

import numpy as np
import pytest

import qddot
from qddot import functions
from qddot.compiler import chunk, repeats
from qddot.compiler.expr import trace
from qddot.compiler.fuse import fused
from qddot.compiler.program import straight_line
from qddot.scalars import mark, settled

NAME = "forward_dynamics_derivatives"


@pytest.fixture
def anywhere(monkeypatch, tmp_path):
    """Sections of any length are shared, and nothing comes from kernels that were compiled before."""
    monkeypatch.setattr(repeats, "LEAST", 1)
    monkeypatch.setattr(repeats, "MANY", 0)
    monkeypatch.setenv("QDDOT_CACHE_DIR", str(tmp_path))


def found(program):
    return repeats.stretches(program, program.nodes(), set())


def sections(*functions_of_xy, count=12):
    """A program with a section for each function, of two inputs of its own and the last one."""

    def run(x):
        out = []
        for k, f in enumerate(functions_of_xy):
            shifted = [x[2 * k] * x[-1], x[2 * k + 1] + x[-1]]  # sections take what is in memory
            mark(tuple(shifted), "given", k)
            out.append(f(*shifted))
            mark(out[-1], "result", k)
        return np.array(out)

    graph, outputs, _ = trace(run, [count])
    return straight_line(graph, outputs, count)


def test_sections_of_one_form_are_found(anywhere):
    def square(x, y):
        return x * x + y * 3.0

    parts = found(sections(square, square, lambda x, y: x * y - y, square))
    forms = [p.form for p in parts if p.form is not None and len(p.nodes) == 3]
    assert len(forms) == 3
    assert len(set(forms)) == 1


@pytest.mark.parametrize(
    "other",
    [
        lambda x, y: x * x + y * 4.0,  # another number
        lambda x, y: x * y + y * 3.0,  # another operand
        lambda x, y: x * x - y * 3.0,  # another operation
        lambda x, y: (x * x + y * 3.0) * x,  # longer
    ],
)
def test_sections_that_differ_are_not_taken_for_each_other(anywhere, other):
    parts = found(sections(lambda x, y: x * x + y * 3.0, other))
    results = [p for p in parts if p.form is not None and len(p.nodes) > 2]
    assert results == []


def test_nothing_is_lost_or_moved(anywhere):
    program = fused(functions.traced(qddot.load("puma560").model, NAME, "auto"))
    assert [n for p in found(program) for n in p.nodes] == program.nodes()


@pytest.mark.parametrize("lanes", [None, 1])
@pytest.mark.parametrize("name", ["arm", "tree"])
def test_shared_code_gives_the_same_bits(monkeypatch, anywhere, tmp_path, name, lanes):
    robot = qddot.load("puma560" if name == "arm" else "quadruped")
    program = fused(functions.traced(robot.model, NAME, "auto"))
    shared = sum(len(p.nodes) for p in found(program) if p.form is not None)
    assert shared > len(program.nodes()) / 5
    rng = np.random.default_rng(0)
    states = [(*robot.random_state(rng), rng.normal(size=robot.nv)) for _ in range(11)]
    batch = [np.array(x) for x in zip(*states, strict=True)]
    once = robot.kernel(NAME, lanes=lanes)
    result = once(*batch)
    monkeypatch.setattr(repeats, "MANY", 10**9)
    monkeypatch.setenv("QDDOT_CACHE_DIR", str(tmp_path / "other"))
    whole = qddot.Robot(robot.model).kernel(NAME, lanes=lanes)
    np.testing.assert_array_equal(result, whole(*batch))
    assert once.info.code_bytes != whole.info.code_bytes


def test_values_that_come_again_have_the_same_bits(monkeypatch, tmp_path):
    robot, rng = qddot.load("quadruped"), np.random.default_rng(1)
    q, v = (np.array(x) for x in zip(*(robot.random_state(rng) for _ in range(9)), strict=True))
    results = []
    for k, again in enumerate((1, 10**9)):
        monkeypatch.setattr(chunk, "AGAIN", again)
        monkeypatch.setenv("QDDOT_CACHE_DIR", str(tmp_path / str(k)))
        results.append(qddot.Robot(robot.model).kernel("forward_dynamics")(q, v, v))
    np.testing.assert_array_equal(*results)


def test_signs_stay_where_they_are_settled():
    def run(x):
        y = settled(-(x[0] + x[1]))
        return np.array([y * x[2], settled(x[0] + x[1]) * x[2]])

    graph, outputs, _ = trace(run, [3])
    minus, plus = (graph.args[n] for n in outputs)
    assert graph.ops[outputs[0]] == graph.ops[outputs[1]] == "mul"
    assert {graph.ops[n] for n in minus} == {"neg", "input"}
    assert {graph.ops[n] for n in plus} == {"add", "input"}
    assert settled(2.0) == 2.0


@pytest.mark.parametrize("source", ["quadruped", "puma560"])
def test_columns_are_explained_by_the_link_that_their_freedom_moves(source):
    """A free joint has six freedoms and one link: columns outnumber links."""
    model = qddot.load(source).model
    rows = [line.split() for line in qddot.Robot(model).kernel(NAME).explain().splitlines()]
    explained = {row[0] for row in rows if row[1:4] == ["a", "by", "v"]}
    assert explained == {model.link_names[i] for i, _ in model.outward()}
