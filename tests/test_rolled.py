"""Rolled code: the same numbers as straight-line code, for every recursion, every kind of joint and any tree."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mechanisms import MOVING

import qddot
from qddot import functions
from qddot.compiler import interp, rolled
from qddot.compiler.fuse import fused
from qddot.errors import NotRollableError
from qddot.functions import FUNCTIONS
from qddot.robots.generators import random_tree
from qddot.rolling.assembly import shelves

# The same operations but for constants that straight-line code folds into others: a few units in the last place, times
# the condition of M where it is divided by.
TOLERANCE = 1e-13
SOLVED = 1e-10

RECURSIONS = {
    "inverse_dynamics": ("newton_euler", "newton_euler_classical", "newton_euler_absolute"),
    "inverse_dynamics_with_forces": ("newton_euler", "newton_euler_classical", "newton_euler_absolute", "denoc"),
    "forward_dynamics": ("articulated_body", "articulated_body_classical", "articulated_body_absolute"),
    "forward_dynamics_with_forces": (
        *("articulated_body", "articulated_body_classical", "articulated_body_absolute"),
        "denoc",
    ),
    "bias_force": ("newton_euler", "newton_euler_classical"),
    "gravity_force": ("newton_euler",),
    "passive_force": ("joints",),
    "forward_kinematics": ("kinematics",),
}
CASES = [(name, method) for name, methods in RECURSIONS.items() for method in methods]


def inputs_of(model, name, rng=0, count=None):
    rng = np.random.default_rng(rng)
    robot = qddot.Robot(model)
    many = [robot.random_state(rng) for _ in range(count or 1)]
    q, v = (np.stack(x) for x in zip(*many, strict=True))
    known = {"q": q, "v": v, "a": rng.standard_normal(v.shape), "f_ext": rng.standard_normal((len(q), model.n_links, 6))}
    known["tau"] = known["a"]
    arrays = [known[x] for x in FUNCTIONS[name].inputs]
    return arrays if count else [x[0] for x in arrays]


def close(x, y, name):
    tolerance = SOLVED if name.startswith("forward_dynamics") else TOLERANCE
    assert np.max(np.abs(np.subtract(x, y)), initial=0.0) <= tolerance * max(1.0, np.max(np.abs(y), initial=0.0))


def agree(model, name, method, regroup=True):
    loops = functions.rolled(model, name, method, regroup=regroup)
    line = functions.traced(model, name, method, regroup=regroup)
    x = np.concatenate([a.reshape(-1) for a in inputs_of(model, name)])
    expected = interp.run(line, x)
    close(rolled.run(loops, x), expected, name)
    close(rolled.run(rolled.fused(loops), x), expected, name)


@pytest.mark.parametrize(("name", "method"), CASES)
@pytest.mark.parametrize("kind", MOVING)
def test_every_recursion_on_every_kind_of_joint(kind, name, method):
    agree(random_tree(6, rng=4, kinds=(kind, "revolute")).model(), name, method)


@given(
    st.integers(0, 10**6),
    st.integers(1, 12),
    st.sampled_from(CASES),
    st.sampled_from(("depth", "breadth", "random")),
    st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_any_tree(seed, n, case, order, regroup):
    """Branches, several roots, free joints in the middle, any numbering."""
    agree(random_tree(n, rng=seed, kinds=MOVING, order=order).model(), *case, regroup=regroup)


@pytest.mark.parametrize("name", RECURSIONS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_kernels_of_both_forms(name, dtype):
    robot = qddot.Robot(random_tree(9, rng=1, kinds=("free", "revolute", "spherical", "prismatic")).model())
    arrays = [x.astype(dtype) for x in inputs_of(robot.model, name, count=21)]
    plain = robot.kernel(name, form="unrolled", dtype=dtype)
    kernels = [robot.kernel(name, form="rolled", dtype=dtype, lanes=lanes) for lanes in (None, 1)]
    results = [k(*arrays) for k in kernels]
    assert all(k.info.form == "rolled" for k in kernels)
    assert np.array_equal(*results)
    assert np.array_equal(results[0][3], kernels[0](*(x[3] for x in arrays)))
    expected = plain(*arrays)
    tolerance = {"float64": SOLVED, "float32": 2e-2}[dtype]  # single precision times a condition of some thousands
    assert np.max(np.abs(results[0] - expected)) <= tolerance * max(1.0, np.max(np.abs(expected)))


@pytest.mark.parametrize("name", ["inverse_dynamics", "forward_dynamics"])
def test_code_does_not_grow_with_a_chain(name):
    small, large = (qddot.chain(n).kernel(name, form="rolled").info.code_bytes for n in (30, 90))
    assert large - small < 60 * 200  # a link's integers and constants
    assert small > 60 * 200


def test_long_chains_are_rolled_and_right():
    robot = qddot.chain(300, rng=0)
    q, v, a = inputs_of(robot.model, "inverse_dynamics", count=9)
    tau = robot.inverse_dynamics(q, v, a)
    assert robot.kernel("inverse_dynamics").info.form == "rolled"
    reference = qddot.algorithms.newton_euler.inverse_dynamics(robot.model, q[0], v[0], a[0])
    close(tau[0], reference, "inverse_dynamics")
    back = robot.forward_dynamics(q, v, tau)
    assert robot.kernel("forward_dynamics").info.form == "rolled"
    # the mass matrix of such a chain is ill-conditioned: what is right is that the same force comes out
    close(robot.inverse_dynamics(q, v, back), tau, "forward_dynamics")


def test_short_robots_are_not_rolled():
    assert qddot.load("quadruped").kernel("inverse_dynamics").info.form == "unrolled"


def test_long_robots_of_many_kinds_are_not_rolled():
    robot = qddot.Robot(random_tree(90, rng=0, kinds=("universal", "spherical_euler", "own")).model())
    with pytest.raises(NotRollableError, match="kinds"):
        robot.kernel("gravity_force", form="rolled")
    assert robot.kernel("gravity_force").info.form == "unrolled"


def test_rows_share_shelves_where_they_can():
    assert max(shelves([0, *range(50)])) == 1  # a chain needs two
    tree = random_tree(40, rng=3).model()
    parent = [max(p, 0) for p in tree.parent]
    shelf = shelves(parent)
    for i in range(1, len(parent)):  # a link's own stays until its last child
        for k in range(parent[i] + 1, i):
            assert shelf[k] != shelf[parent[i]]


@pytest.mark.parametrize(
    ("name", "extra", "why"),
    [
        ("mass_matrix", {}, "more of the tree"),
        ("mass_matrix_inverse", {}, "more of the tree"),
        ("kinetic_energy", {}, "another one|link by link"),
        ("jacobian", {"frame": "link2"}, "through all that carry it"),
        ("coriolis_matrix", {}, "."),
        ("center_of_mass", {}, "."),
        ("momentum", {}, "."),
        ("centroidal_momentum_matrix", {}, "."),
    ],
)
def test_what_cannot_be_rolled_says_why(name, extra, why):
    robot = qddot.chain(5)
    with pytest.raises(NotRollableError, match=f"{name} of 'chain5' cannot be rolled: .*({why}).*form='unrolled'"):
        robot.kernel(name, form="rolled", **extra)


def test_coupled_joints_and_free_parameters_are_not_rolled():
    robot = qddot.Robot(random_tree(6, rng=2, kinds=("revolute",), mimic=True).model())
    with pytest.raises(NotRollableError, match="share coordinates"):
        robot.kernel("inverse_dynamics", form="rolled")
    with pytest.raises(NotRollableError, match="free"):
        qddot.chain(4).kernel("inverse_dynamics", form="rolled", free=("mass",))
    with pytest.raises(qddot.InputError, match="form='loops' is not known"):
        qddot.chain(4).kernel("inverse_dynamics", form="loops")


def test_the_cheapest_formulation_that_can_be_rolled_is_taken():
    assert qddot.chain(4).kernel("forward_dynamics", form="rolled").info.method == "articulated_body_classical"
    with pytest.raises(NotRollableError):
        qddot.chain(4).kernel("forward_dynamics", form="rolled", method="composite_body_factored")


def test_operations_are_counted_over_all_links():
    robot = qddot.chain(40)
    line, loops = (robot.kernel("inverse_dynamics", form=form).info for form in ("unrolled", "rolled"))
    assert loops.ops["sincos"] == line.ops["sincos"] == 80
    assert line.instructions <= loops.instructions < 1.5 * line.instructions


def test_explaining_names_loops_and_links():
    text = qddot.chain(40).kernel("inverse_dynamics", form="rolled").explain()
    assert "loop 1 outward" in text
    assert "loop 2 inward" in text
    assert " more" in text
    assert text.splitlines()[-1].split()[:4] == ["total", "of", "all", "links"]


def test_fusing_keeps_places():
    loops = functions.rolled(qddot.chain(5).model, "inverse_dynamics", "newton_euler")
    quick = rolled.fused(loops)
    assert fused(loops.sweeps[0].segments[0].program).count() == quick.sweeps[0].segments[0].program.count()
    assert quick.sweeps[0].segments[0].targets == loops.sweeps[0].segments[0].targets


def test_a_long_chain_that_carries_nothing_is_found_out():
    b = qddot.Builder("rope")
    for k in range(301):
        b.link(f"link{k}", 1.0 if k < 300 else 0.0, (0.0, 0.0, -0.05), (0.1, 0.0, 0.0, 0.1, 0.0, 0.1) if k < 300 else None)
        b.joint(f"joint{k}", f"link{k - 1}" if k else "world", f"link{k}", qddot.joints.Revolute((0, 1, 0)))
    assert b.robot().massless_joints == ("joint300",)
    assert qddot.chain(301).massless_joints == ()


@pytest.mark.slow
def test_ten_thousand_links():
    robot = qddot.chain(10_000, rng=0)
    q, v, a = inputs_of(robot.model, "inverse_dynamics", count=2)
    tau = robot.inverse_dynamics(q, v, a)
    reference = qddot.algorithms.newton_euler.inverse_dynamics(robot.model, q[0], v[0], a[0])
    assert np.max(np.abs(tau[0] - reference)) <= 1e-11 * np.max(np.abs(reference))  # rounding of ten thousand links
    back = robot.forward_dynamics(q, v, tau)
    # accelerations of such a chain are ill-conditioned: what is right is that the same forces come out
    assert np.max(np.abs(robot.inverse_dynamics(q, v, back) - tau)) <= 1e-6 * np.max(np.abs(tau))
