"""`robot.trace`: what an algorithm computes, by symbol and link, satisfies the papers' equations."""

import csv
import io
import pickle

import numpy as np
import pytest

import qddot
from qddot.algorithms import articulated_body, composite_body, newton_euler
from qddot.dynamics.catalogue import FUNCTIONS
from qddot.errors import FormulationError, InputError, SingularMassMatrixError, UnknownNameError
from qddot.joints import Revolute
from qddot.robot.algorithm_trace import symbol_table
from qddot.robot.trace import TRACED
from qddot.robots.generators import random_tree
from qddot.spatial.rotation import skew

EXACT = 1e-12  # a few hundred operations on numbers of size one to a hundred, relative


def Ad_inv(T):
    """The 6×6 matrix of Ad_{T⁻¹}, Kim (6) (7), of a 4×4 matrix."""
    R, p = T[:3, :3], np.array(skew(tuple(T[:3, 3])))
    return np.block([[R.T, np.zeros((3, 3))], [-R.T @ p, R.T]])


def ad(V):
    """Kim (27)."""
    w, v = (np.array(skew(tuple(x))) for x in (V[:3], V[3:]))
    return np.block([[w, np.zeros((3, 3))], [v, w]])


class Case:
    """A random tree over all kinds of joints, with rotors, dampers, mimic joints and external forces."""

    def __init__(self, seed, mimic=False):
        kinds = ("revolute", "prismatic", "helical") if mimic else tuple(k for k in qddot.joints.KINDS if k != "fixed")
        self.robot = qddot.Robot(random_tree(7, rng=seed, kinds=kinds, mimic=mimic).model(), compiled=False)
        rng = np.random.default_rng(seed)
        self.q, self.v = self.robot.random_state(rng)
        self.a, self.tau = rng.standard_normal((2, self.robot.nv))
        self.f_ext = rng.standard_normal((self.robot.model.n_links, 6))
        self.model = self.robot.model
        self.names = self.model.link_names

    def links(self):
        return ((i, self.names[i], self.names[p]) for i, p in self.model.outward())

    def children(self, i):
        return [self.names[k] for k, p in self.model.outward() if p == i]


def close(x, y):
    np.testing.assert_allclose(x, y, rtol=EXACT, atol=EXACT * max(1.0, np.max(np.abs(y), initial=0.0)))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("mimic", [False, True])
def test_recursive_newton_euler(seed, mimic):
    """Kim (37) (41) (42) and Table 2; Featherstone & Orin (7) (8)."""
    c = Case(seed, mimic)
    t = c.robot.trace("inverse_dynamics", c.q, c.v, c.a, c.f_ext)
    close(t.V["world"], np.zeros(6))
    close(t.Vdot["world"], [0, 0, 0, *(-np.array(c.model.gravity))])
    total = np.zeros(c.robot.nv)
    for i, link, parent in c.links():
        X, S, I, V = Ad_inv(t.T[link]), t.S[link], t.I[link], t.V[link]
        J_v = S @ t.v[link]
        close(V, X @ t.V[parent] + J_v)  # (37)
        close(t.Vdot[link], X @ t.Vdot[parent] + ad(V) @ J_v + t.Sdot_v[link] + S @ t.a[link])  # (41)
        F = I @ t.Vdot[link] - ad(V).T @ I @ V - t.F_ext[link]  # (42)
        close(t.F[link], F + sum(Ad_inv(t.T[k]).T @ t.F[k] for k in c.children(i)))
        close(t.F_ext[link], c.f_ext[i - 1])
        close(t.tau[link], S.T @ t.F[link] + np.array(c.model.armature[i]) * t.a[link])
        slot = c.model.slots[i]
        total[slot.v] += (1.0 if slot.factor is None else slot.factor) * (t.tau[link] - t.passive[link])
    close(total, t.result)
    close(t.result, c.robot.inverse_dynamics(c.q, c.v, c.a, c.f_ext))


@pytest.mark.parametrize("seed", range(6))
def test_articulated_bodies(seed):
    """Kim Table 3, (43)-(50)."""
    c = Case(seed)
    t = c.robot.trace("forward_dynamics", c.q, c.v, c.tau, c.f_ext)
    for i, link, parent in c.links():
        X, S, I, V = Ad_inv(t.T[link]), t.S[link], t.I[link], t.V[link]
        eta, I_A, B, U, Psi = t.eta[link], t.I_A[link], t.B[link], t.U[link], t.Psi[link]
        tau = t.tau[link] + t.passive[link]
        heavy = [k for k in c.children(i) if k in t.Pi]  # a free joint passes on nothing of what is behind it
        close(eta, ad(V) @ S @ t.v[link] + t.Sdot_v[link])
        close(I_A, I + sum(Ad_inv(t.T[k]).T @ t.Pi[k] @ Ad_inv(t.T[k]) for k in heavy))
        own = -ad(V).T @ I @ V - t.F_ext[link]
        close(B, own + sum(Ad_inv(t.T[k]).T @ t.beta[k] for k in c.children(i)))
        close(U, I_A @ S)
        close(Psi @ (S.T @ U + np.diag(c.model.armature[i])), np.eye(len(Psi)))
        if link in t.Pi:
            close(t.Pi[link], I_A - U @ Psi @ U.T)
            close(t.beta[link], B + I_A @ (eta + S @ Psi @ (tau - S.T @ (I_A @ eta + B))))
        else:
            assert c.model.is_free_without_rotor(i)
            close(S.T @ t.beta[link], tau)
        given = X @ t.Vdot[parent] + eta
        close(t.a[link], Psi @ (tau - U.T @ given - S.T @ B))
        close(t.Vdot[link], given + S @ t.a[link])
    close(t.result, c.robot.forward_dynamics(c.q, c.v, c.tau, c.f_ext))
    close(np.concatenate([t.a[link] for _, link, _ in c.links()]), t.result)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("mimic", [False, True])
def test_composite_bodies(seed, mimic):
    """Featherstone & Orin (9) (10) and the listing after them."""
    c = Case(seed, mimic)
    t = c.robot.trace("mass_matrix", c.q)
    for i, link, _ in c.links():
        X = {k: Ad_inv(t.T[k]) for k in c.children(i)}
        close(t.I_C[link], t.I[link] + sum(X[k].T @ t.I_C[k] @ X[k] for k in X))
        close(t.f_C[link][link], t.I_C[link] @ t.S[link])
        close(t.M[link][link], t.S[link].T @ t.f_C[link][link] + np.diag(c.model.armature[i]))
        for j in list(c.model.ancestors(i))[1:]:
            seen, inner = c.names[j], next(k for k in c.children(j) if k in t.f_C[link])
            close(t.f_C[link][seen], Ad_inv(t.T[inner]).T @ t.f_C[link][inner])
            close(t.M[seen][link], t.S[seen].T @ t.f_C[link][seen])
            close(t.M[link][seen], t.M[seen][link].T)
    close(t.result, c.robot.mass_matrix(c.q))


@pytest.mark.parametrize("function", TRACED)
def test_every_formulation_runs_and_gives_its_own_result(function):
    robot = qddot.load("puma560")
    q, v = robot.random_state(0)
    inputs = (q,) if function == "mass_matrix" else (q, v, np.ones(6))
    expected = getattr(robot, function)(*inputs)
    for method in FUNCTIONS[function].methods:
        try:
            t = robot.trace(function, *inputs, method=method)
        except FormulationError:
            continue
        assert t.method == method
        np.testing.assert_allclose(t.result, expected, rtol=1e-9, atol=1e-9)
        assert t.table()


def test_it_is_the_algorithm_itself():
    """The bits of the eager algorithm, and each step in the order in which it is written."""
    c = Case(3)
    t = c.robot.trace("inverse_dynamics", c.q, c.v, c.a)
    assert np.array_equal(t.result, newton_euler.inverse_dynamics(c.model, c.q, c.v, c.a))
    t = c.robot.trace("forward_dynamics", c.q, c.v, c.tau)
    assert np.array_equal(t.result, articulated_body.forward_dynamics(c.robot.engine.solvability.guarded, c.q, c.v, c.tau))
    assert np.array_equal(c.robot.trace("mass_matrix", c.q).result, composite_body.mass_matrix(c.model, c.q))
    order = [(s.symbol, s.link) for s in t.steps]
    first, last = c.names[1], c.names[-1]
    assert order.index(("V", first)) < order.index(("V", last)) < order.index(("I_A", last)) < order.index(("I_A", first))
    written = [s.value for s in t.steps if (s.symbol, s.link) == ("B", "world")]
    assert len(written) == 1 + len(c.children(0))  # at first nothing, then what each child adds
    assert np.array_equal(written[-1], t.B["world"])


def test_symbols_are_those_of_the_docstrings():
    table = symbol_table(newton_euler.__doc__)
    assert table["Vdot"].papers == {"Kim": "V̇_i", "Featherstone & Orin": "a_i"}
    robot = qddot.load("double_pendulum")
    for function, inputs in (("inverse_dynamics", 3), ("forward_dynamics", 3), ("mass_matrix", 1)):
        t = robot.trace(function, *np.ones((inputs, 2)))
        for name, symbol in t.symbols.items():
            assert symbol.meaning, f"{function}: nothing says what {name} is"
    assert t.symbols["f_C"].text == "f_C: f_i^C(j) (paper), force that accelerates it along joint i, seen in link j"
    assert "Featherstone & Orin 2000, section 3.2" in t.source


def test_forces_by_name():
    robot = qddot.load("puma560")
    q, v = robot.random_state(0)
    wrench = np.arange(6.0)
    t = robot.trace("inverse_dynamics", q, v, v, {"link6": wrench}, expressed_in="world")
    close(t.result, robot.inverse_dynamics(q, v, v, {"link6": wrench}, expressed_in="world"))
    assert np.any(t.F_ext[robot.link_names[-1]])
    plain = robot.trace("inverse_dynamics", q, v, v, None)
    assert "F_ext" not in plain.values
    assert np.array_equal(plain.result, robot.trace("inverse_dynamics", q, v, v).result)


# ---- how it is looked at


@pytest.fixture
def trace():
    robot = qddot.load("double_pendulum")
    return robot.trace("inverse_dynamics", [0.3, 0.2], [1.0, -2.0], [0.5, 0.1])


def test_by_attribute_by_key_and_in_a_list(trace):
    link = trace.robot.link_names[1]
    assert trace.V[link] is trace["V"][link]
    assert "V" in dir(trace)
    assert list(trace.V) == ["world", *trace.robot.link_names]
    assert list(trace.tau) == list(trace.robot.link_names)  # in their order, though they are computed inward
    with pytest.raises(UnknownNameError, match="has no link 'nobody'"):
        trace.V["nobody"]
    with pytest.raises(UnknownNameError, match="symbol 'Vdott': did you mean 'Vdot'"):
        trace["Vdott"]
    with pytest.raises(AttributeError, match="no symbol 'W'; it has I, v, a, T"):
        _ = trace.W
    with pytest.raises(ValueError, match="read-only"):
        trace.V[link][0] = 1.0


def test_as_text(trace):
    text = trace.table("V", "tau")
    assert text.startswith("V: V_i (Kim), v_i (Featherstone & Orin), link velocity\n  world")
    for link in trace.robot.link_names:
        assert f"{trace.tau[link][0]:>11.5g}" in text
    assert str(trace).startswith("inverse_dynamics of 'double_pendulum' by newton_euler\nKim 2012")
    assert repr(trace).startswith("<Trace: inverse_dynamics of 'double_pendulum' by newton_euler; symbols I, v, a, T, S")
    assert repr(trace.tau).startswith("tau of 'double_pendulum':\n  ")
    with pytest.raises(UnknownNameError, match="no symbol 'X'"):
        trace.table("X")


def test_as_csv(trace, tmp_path):
    text = trace.to_csv(tmp_path / "trace.csv")
    assert (tmp_path / "trace.csv").read_text(encoding="utf-8") == text
    rows = list(csv.DictReader(io.StringIO(text)))
    link = trace.robot.link_names[0]
    found = {int(r["row"]): float(r["value"]) for r in rows if r["symbol"] == "F" and r["link"] == link}
    assert [found[k] for k in range(6)] == trace.F[link].tolist()
    blocks = trace.robot.trace("mass_matrix", [0.1, 0.2]).to_csv()
    assert f"M,{link},{trace.robot.link_names[1]},0,0," in blocks


def test_a_formula_in_a_name_stays_text():
    b = qddot.Builder("x").link("=1+1", 1.0, (0.1, 0, 0)).joint("j", "world", "=1+1", Revolute("y"))
    assert "V,'=1+1,,0,0," in qddot.Robot(b.model()).trace("inverse_dynamics", [0.1], [0.0], [0.0]).to_csv()


def test_it_travels(trace):
    again = pickle.loads(pickle.dumps(trace))
    assert again.table() == trace.table()


def test_compiled_or_not_and_single_precision(trace):
    eager = qddot.Robot(trace.robot.model, compiled=False)
    inputs = [x.astype(np.float32) for x in trace.inputs.values()]
    assert np.allclose(eager.trace("inverse_dynamics", *inputs).result, trace.result, rtol=1e-6)


# ---- what cannot be traced


def test_wrong_inputs_are_named(trace):
    robot = trace.robot
    one = np.zeros(2)
    with pytest.raises(InputError, match=r"a trace is of one state, and q has shape \(3, 2\)"):
        robot.trace("inverse_dynamics", np.zeros((3, 2)), one, one)
    with pytest.raises(InputError, match=r"q has shape \(3,\)"):
        robot.trace("inverse_dynamics", np.zeros(3), one, one)
    with pytest.raises(InputError, match="inverse_dynamics takes q, v, a; 2 arrays"):
        robot.trace("inverse_dynamics", one, one)
    with pytest.raises(InputError, match="real numbers, and q holds complex"):
        robot.trace("mass_matrix", one.astype(complex))
    with pytest.raises(UnknownNameError, match="no trace of 'inverse_dynamic'"):
        robot.trace("inverse_dynamic", one, one, one)
    with pytest.raises(UnknownNameError, match="method"):
        robot.trace("mass_matrix", one, method="magic")
    assert np.isnan(robot.trace("inverse_dynamics", [np.nan, 0.0], one, one).result).any()


def test_robots_with_loops():
    robot = qddot.load("fourbar")
    q, v = np.zeros(robot.nq), np.zeros(robot.nv)
    with pytest.raises(InputError, match=r"would ignore; .*spanning_tree"):
        robot.trace("inverse_dynamics", q, v, v)
    assert np.allclose(robot.trace("mass_matrix", q).result, robot.mass_matrix(q))
    assert robot.spanning_tree().trace("inverse_dynamics", q, v, v).F


def test_motions_without_mass_are_named():
    b = qddot.Builder("x").link("l").joint("slack", "world", "l", Revolute("z"))
    with pytest.raises(SingularMassMatrixError, match="slack"):
        qddot.Robot(b.model()).trace("forward_dynamics", [0.0], [0.0], [0.0])
