"""Rolled code: the same numbers as straight-line code, for every recursion, every kind of joint and any tree."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qddot
from qddot.compiler.ir import interpreter, loop_program
from qddot.compiler.ir.fuse import fused
from qddot.dynamics import trace
from qddot.dynamics.catalogue import FUNCTIONS
from qddot.dynamics.loop_tracing.lowering import frames
from qddot.errors import NotRollableError
from qddot.mechanism.model import Frame, Mimic
from qddot.robots.generators import random_tree
from qddot.spatial import constant_transform
from tests.support.mechanisms import MOVING
from tests.support.profiles import examples
from tests.support.rolled import (
    INVERSES,
    SOLVED,
    TOLERANCE,
    agree,
    close,
    inputs_of,
    needs_of,
    needs_only,
)

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
    "hybrid_dynamics": ("articulated_body", "articulated_body_classical"),
    "hybrid_dynamics_with_forces": ("articulated_body",),
    "pose": ("kinematics",),
    "velocity": ("kinematics",),
    "acceleration": ("kinematics",),
    "jacobian": ("kinematics",),
    "jacobian_derivative": ("kinematics",),
    "operational_space_inverse_inertia": ("force_propagation",),
    "kinetic_energy": ("energy",),
    "potential_energy": ("energy",),
    "center_of_mass": ("energy",),
    "momentum": ("energy",),
    "centroidal_momentum_matrix": ("composite_body",),
    "centroidal_momentum_matrix_derivative": ("composite_body",),
    "center_of_mass_jacobian": ("composite_body",),
    "center_of_mass_jacobian_derivative": ("composite_body",),
    "mass_matrix": ("composite_body", "newton_euler_columns"),
    "mass_matrix_inverse": ("articulated_body",),
    "coriolis_matrix": ("composite_body",),
    "convective_inertia_matrix": ("denoc",),
    "inverse_dynamics_derivatives": ("composite_body", "newton_euler"),
    "forward_dynamics_derivatives": ("articulated_body",),
    "hybrid_dynamics_derivatives": ("articulated_body",),
    "regressor": ("newton_euler",),
    "forward_dynamics_inertia_derivatives": ("articulated_body",),
    "external_force_jacobian": ("kinematics",),
}
NOT_ROLLED = {"acceleration_by_force"}  # a product of two matrices
CASES = [(name, method) for name, methods in RECURSIONS.items() for method in methods]
SMALL = 3  # links: enough for branches; two where every column repeats a long recursion
LONG_RECURSIONS = (
    "forward_dynamics_derivatives",
    "hybrid_dynamics_derivatives",
    "forward_dynamics_inertia_derivatives",
)


# Every recursion on a few kinds of joints and a few recursions on every kind; the rest is slow.
FEW_KINDS = ("revolute", "free", "spherical_exponential", "own")
FEW_CASES = ("inverse_dynamics", "forward_dynamics", "mass_matrix", "jacobian", "forward_kinematics", "coriolis_matrix")
FIRST = [(name, RECURSIONS[name][0]) for name in FEW_CASES]
ON_KINDS = [
    pytest.param(kind, name, method, marks=() if kind in FEW_KINDS or (name, method) in FIRST else pytest.mark.slow)
    for kind in MOVING
    for name, method in CASES
]


@pytest.mark.parametrize(("kind", "name", "method"), ON_KINDS)
def test_every_recursion_on_every_kind_of_joint(kind, name, method):
    n, seed = (2, 6) if name in LONG_RECURSIONS else (SMALL, 24)
    model = random_tree(n, rng=seed, kinds=(kind, "revolute")).model()
    assert kind in {joint.kind for joint in model.joint}
    assert n < SMALL or model.parent == (-1, 0, 1, 1)
    agree(model, name, method, tolerance=TOLERANCE)


@given(
    st.integers(0, 10**6),
    st.integers(1, 9),
    st.sampled_from(CASES),
    st.sampled_from(("depth", "breadth", "random")),
    st.booleans(),
)
@examples(40)
def test_any_tree(seed, n, case, order, regroup):
    """Branches, several roots, free joints in the middle, any numbering."""
    n = min(n, 3 if case[0] in LONG_RECURSIONS else SMALL) if case[0].endswith("derivatives") else n
    agree(random_tree(n, rng=seed, kinds=MOVING, order=order).model(), *case, regroup=regroup)


SINGLE = ("inverse_dynamics", "forward_dynamics", "mass_matrix", "forward_kinematics", "regressor")  # others are slow
BOTH = [
    *((name, "float64") for name in RECURSIONS),
    *(
        pytest.param(name, "float32", marks=() if name in SINGLE else pytest.mark.slow)
        for name in RECURSIONS
        if name not in LONG_RECURSIONS
    ),
]
LARGE_RESULTS = ("coriolis_matrix", "convective_inertia_matrix", "regressor", "external_force_jacobian")


@pytest.mark.parametrize(("name", "dtype"), BOTH)
def test_kernels_of_both_forms(name, dtype):
    kinds, few = ("free", "revolute", "prismatic"), name.endswith("derivatives") or name in LARGE_RESULTS
    robot = qddot.Robot(random_tree(3 if few else 5, rng=1, kinds=kinds).model())
    arrays = [x.astype(dtype) for x in inputs_of(robot.model, name, count=21)]
    needs = needs_of(robot.model, name)
    plain = robot.kernel(name, form="unrolled", dtype=dtype, **needs)
    lanes = (None, 1, 2, 4) if name in SINGLE else (None, 1)
    kernels = [robot.kernel(name, form="rolled", dtype=dtype, lanes=k, **needs) for k in lanes]
    results = [k(*arrays) for k in kernels]
    assert all(k.info.form == "rolled" for k in kernels)
    assert all(np.array_equal(results[0], other) for other in results[1:])
    assert np.array_equal(results[0][3], kernels[0](*(x[3] for x in arrays)))
    expected = plain(*arrays)
    tolerance = {"float64": SOLVED, "float32": 2e-2}[dtype]  # single precision times a condition of some thousands
    assert np.max(np.abs(results[0] - expected)) <= tolerance * max(1.0, np.max(np.abs(expected)))


@pytest.mark.parametrize("name", [*RECURSIONS])
def test_code_does_not_grow_with_a_chain(name):
    """The instructions of two chains are as many; their bytes differ by tables only."""
    sizes = []
    for n in (20, 50):
        robot = qddot.chain(n)
        needs = {"frame": robot.link_names[-1], "prescribed": tuple(range(n))}
        loops = trace.rolled(robot.model, name, next(iter(RECURSIONS[name])), **needs_only(name, needs))
        sizes.append(sum(len(segment.program.body) for segment, _ in loops.executed()))
    assert sizes[0] == sizes[1]
    assert sizes[0] > 0 or name == "passive_force"  # these chains have no dampers and springs


@pytest.mark.parametrize("name", ["inverse_dynamics", "forward_dynamics"])
def test_bytes_do_not_grow_with_a_chain(name):
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


def test_rows_share_frames_where_they_can():
    assert max(frames([0, *range(50)])) == 1  # a chain needs two
    tree = random_tree(40, rng=3).model()
    parent = [max(p, 0) for p in tree.parent]
    frame = frames(parent)
    for i in range(1, len(parent)):  # a link's own stays until its last child
        for k in range(parent[i] + 1, i):
            assert frame[k] != frame[parent[i]]


@pytest.mark.parametrize(
    ("name", "extra", "why"),
    [
        ("mass_matrix_inverse", {"method": "composite_body_factored"}, "parent in a plain list"),
        ("forward_dynamics_derivatives", {"method": "composite_body_factored"}, "parent in a plain list"),
        ("forward_dynamics_inertia_derivatives", {"method": "composite_body_factored"}, "parent in a plain list"),
        ("mass_matrix", {"method": "composite_body_absolute"}, "by blocks"),
        ("operational_space_inverse_inertia", {"frame": "link2", "method": "jacobian"}, "goes on with a matrix"),
        ("inverse_dynamics_derivatives", {"method": "differentiated"}, "Dual"),
    ],
)
def test_what_cannot_be_rolled_says_why(name, extra, why):
    robot = qddot.chain(5)
    with pytest.raises(NotRollableError, match=f"{name} of 'chain5' cannot be rolled: .*({why}).*form='unrolled'"):
        robot.kernel(name, form="rolled", **extra)


def test_every_function_of_trees_is_rolled():
    assert set(RECURSIONS) | NOT_ROLLED == set(FUNCTIONS)


def test_matrices_of_long_chains_are_rolled_and_right():
    robot = qddot.chain(200, rng=0)
    q, v, a = inputs_of(robot.model, "inverse_dynamics", count=9)
    M = robot.mass_matrix(q)
    assert robot.kernel("mass_matrix").info.form == "rolled"
    assert np.array_equal(M, np.swapaxes(M, -1, -2))
    forces = robot.inverse_dynamics(q, v, a) - robot.bias_force(q, v)
    close(np.einsum("nij,nj->ni", M, a), forces, "inverse_dynamics")
    W = robot.kernel("mass_matrix_inverse", form="auto")
    assert (W.info.form, W.info.method) == ("rolled", "articulated_body")


# Without what does not add up over joints that share a coordinate: solutions, and recursions repeated for every column.
SHARED = [
    case
    for case in CASES
    if not case[0].startswith(("forward_dynamics", "hybrid_dynamics", *INVERSES))
    and case not in (("mass_matrix", "newton_euler_columns"), ("inverse_dynamics_derivatives", "newton_euler"))
]


@pytest.mark.parametrize(("name", "method"), SHARED)
@pytest.mark.parametrize("seed", range(3))
def test_joints_that_share_coordinates(name, method, seed):
    """Joints that follow others, also others further out and in other branches: what they bring is added up."""
    model = random_tree(6, rng=seed, kinds=("revolute", "prismatic", "free"), mimic=True).model()
    assert model.is_coupled
    agree(model, name, method, tolerance=TOLERANCE)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_does_not_add_up_is_not_rolled_where_coordinates_are_shared(name):
    model = random_tree(6, rng=2, kinds=("revolute",), mimic=True).model()
    for method in FUNCTIONS[name].methods:
        if (name, method) not in [*SHARED, ("inverse_dynamics", "denoc"), ("bias_force", "denoc")]:
            with pytest.raises(NotRollableError):
                trace.rolled(model, name, method, **needs_of(model, name))


@pytest.mark.parametrize("name", ["inverse_dynamics", "mass_matrix", "coriolis_matrix"])
@pytest.mark.parametrize("lanes", [None, 1])
def test_kernels_of_joints_that_share_coordinates(name, lanes):
    robot = qddot.Robot(random_tree(6, rng=2, kinds=("revolute",), mimic=True).model())
    arrays = inputs_of(robot.model, name, count=21)
    forms = [robot.kernel(name, form=form, lanes=lanes)(*arrays) for form in ("rolled", "unrolled")]
    close(*forms, name)


def test_a_long_chain_whose_joints_share_coordinates():
    model = qddot.chain(99, rng=0).model
    follows = (Mimic(max(i - 1, 1 + i % 7), 0.5 + 0.01 * i, 0.1) if i % 3 == 2 else None for i in range(100))
    robot = qddot.Robot(dataclasses.replace(model, mimic=tuple(follows)))
    q, v, a = inputs_of(robot.model, "inverse_dynamics", count=9)
    assert robot.nv == 66
    assert robot.kernel("inverse_dynamics").info.form == robot.kernel("mass_matrix").info.form == "rolled"
    reference = qddot.algorithms.newton_euler.inverse_dynamics(robot.model, q[0], v[0], a[0])
    close(robot.inverse_dynamics(q, v, a)[0], reference, "inverse_dynamics")
    close(robot.mass_matrix(q)[0], qddot.algorithms.composite_body.mass_matrix(robot.model, q[0]), "mass_matrix")


def test_free_parameters_are_not_rolled():
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


def test_explaining_tells_columns_from_what_they_pass_through():
    text = qddot.chain(40).kernel("mass_matrix", form="rolled").explain()
    assert "loop 2 columns  link2 and 37 more" in text
    assert "loop 2 through  link2 and 37 more" in text


def test_fusing_keeps_places():
    loops = trace.rolled(qddot.chain(5).model, "inverse_dynamics", "newton_euler")
    quick = loop_program.fused(loops)
    assert fused(loops.loops[0].segments[0].program).count() == quick.loops[0].segments[0].program.count()
    assert quick.loops[0].segments[0].targets == loops.loops[0].segments[0].targets


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


@pytest.mark.parametrize("name", [name for name in RECURSIONS if "frame" in FUNCTIONS[name].needs])
@pytest.mark.parametrize("link", [0, 2, 7])
def test_frames_away_from_their_links(name, link):
    model = random_tree(7, rng=5).model()
    placement = constant_transform(((0.0, -1.0, 0.0), (1.0, 0.0, 0.0), (0.0, 0.0, 1.0)), (0.1, -0.2, 0.3))
    model = dataclasses.replace(model, frames=(Frame("tool", link, placement),))
    loops, line = (f(model, name, "auto", frame="tool") for f in (trace.rolled, trace.traced))
    x = np.concatenate([a.reshape(-1) for a in inputs_of(model, name)])
    close(loop_program.run(loops, x), interpreter.run(line, x), name)


TEN = (0.4, 0.1, -0.2, 0.3, 0.5, 0.01, 0.6, 0.02, 0.03, 0.7)


@pytest.mark.parametrize("kind", FEW_KINDS)
@pytest.mark.parametrize(
    ("name", "scalars"),
    [
        ("inverse_dynamics_derivative", ("q", "v", "a", "inertia", "placement", "gravity", "f_ext")),
        ("forward_dynamics_derivative", ("q",)),
        ("hybrid_dynamics_derivative", ("v", "inertia")),
    ],
)
def test_derivatives_by_one_scalar(kind, name, scalars):
    """On a few kinds of joints; `test_any_tree` and the matrices of derivatives have all."""
    model = random_tree(3, rng=6, kinds=(kind, "revolute")).model()
    numbers = {"inertia": (2, TEN), "placement": (2, TEN[:6]), "gravity": (TEN[:3],), "f_ext": (2, 4)}
    for scalar in scalars:
        agree(model, name, "auto", tolerance=TOLERANCE, by=(scalar, *numbers.get(scalar, (model.nv // 2,))))


@pytest.mark.parametrize("scalar", ["a", "tau", "placement", "gravity"])
def test_derivatives_of_accelerations_and_forces_by_one_scalar(scalar):
    model = random_tree(4, rng=7, kinds=("free", "universal")).model()
    numbers = {"placement": (3, TEN[:6]), "gravity": (TEN[:3],)}
    agree(model, "hybrid_dynamics_derivative", "auto", by=(scalar, *numbers.get(scalar, (model.nv - 1,))))


def test_kernels_of_a_derivative_by_one_scalar():
    robot = qddot.chain(100)
    q, v, a = inputs_of(robot.model, "inverse_dynamics_derivative", count=9)
    kernel = robot.kernel("inverse_dynamics_derivative", by=("q", "joint40"))
    assert kernel.info.form == "rolled"
    close(
        kernel(q, v, a), robot.inverse_dynamics_derivatives(q, v, a).dq[..., robot.v_index["joint40"]], "inverse_dynamics"
    )
