"""Kernels of vector-Jacobian and Jacobian-vector products: every function, every kind of joint, first and second order."""

import dataclasses
import pickle

import numpy as np
import pytest

import qddot
from qddot.compiler.codegen.abi import grid
from qddot.compiler.ir import differentiate, interpreter
from qddot.compiler.targets import nvptx
from qddot.dynamics import catalogue, pipeline, products
from qddot.errors import InputError, KernelTooLargeError, UnknownNameError
from qddot.robots.generators import random_tree
from tests.support.derivative_cases import MARKED, dynamics_of
from tests.support.grid_emulation import Emulated
from tests.support.mechanisms import MOVING, bent_chain
from tests.support.products import at_random
from tests.support.real_robots import load, or_skipped

# Complex steps have no truncation error, and both sides add up some thousand products: 1e-15 each, cancellation included.
TOLERANCE = 1e-11
# Differences of first products, of step 1e-6 on numbers of size 1: 1e-12 of truncation, 1e-16/1e-6 of rounding.
DIFFERENCES = 1e-8

OF_TREES = tuple(x for x in catalogue.ALL if x not in {*catalogue.LOOP_FUNCTIONS, *catalogue.CUBIC, *catalogue.BY_SCALAR})
MAIN = ("inverse_dynamics", "forward_dynamics", "mass_matrix", "pose", "potential_energy")
COORDINATES = ("tangent", "ambient")


def needs_of(name, robot):
    """A frame at the end, every other degree of freedom prescribed, and one row: few joints do not span six."""
    known = {"frame": robot.frame_names[-1], "prescribed": tuple(range(0, robot.nv, 2)), "rows": (3,)}
    return {need: known[need] for need in catalogue.lookup(name, "auto")[0].needs}


def flat(tangents):
    return np.concatenate([np.ravel(x) for x in tangents.values()])


def close(found, expected, tolerance=TOLERANCE):
    found, expected = np.ravel(found), np.ravel(expected)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max(initial=0.0) <= tolerance * (1.0 + np.abs(expected).max(initial=0.0))


def same_sum(row, direction, expected):
    """row · direction against a number that was added up in another order."""
    assert abs(row @ direction - expected) <= TOLERANCE * (1.0 + np.abs(row) @ np.abs(direction))


def check_first(point, rng, wrt=None):
    wrt = tuple(wrt or point.given)
    tangents = {x: rng.standard_normal(s) for x, s in point.sizes(wrt).items()}
    rates = point.first(tangents)
    cotangent = rng.standard_normal(rates.shape)
    for known in {False, point.function in products.HAVE_KNOWN_RESULT}:
        row = point.interpreted(["vjp"], wrt, cotangent, known_result=known)
        same_sum(row, flat(tangents), np.sum(cotangent * rates))
        close(point.interpreted(["jvp"], wrt, *tangents.values(), known_result=known), rates)


def check_second(point, rng, wrt=None):
    wrt = tuple(wrt or point.given)
    tangents, others = (
        {x: rng.standard_normal(s) for x, s in point.sizes(wrt).items()},
        {x: rng.standard_normal(s) for x, s in point.sizes(wrt).items()},
    )
    rates, curved = point.first(tangents), point.second(tangents, others)
    cotangent = rng.standard_normal(rates.shape)
    expected = np.sum(cotangent * curved)
    close(point.interpreted(["jvp", "jvp"], wrt, *tangents.values(), *others.values()), curved)
    same_sum(point.interpreted(["vjp", "jvp"], wrt, cotangent, *others.values()), flat(tangents), expected)
    twice = point.interpreted(["vjp", "vjp"], wrt, cotangent, flat(tangents))
    size = len(flat(tangents))
    same_sum(twice[:size], flat(others), expected)
    close(twice[size:], rates)  # the gradient with respect to the cotangent


# ---- against the readable algorithms -----------------------------------------------------------------------------------


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("kind", MOVING)
def test_every_kind_of_joint(kind, coordinates):
    robot = qddot.Robot(random_tree(3, rng=2, kinds=(kind, "revolute")).model(), compiled=False)
    rng = np.random.default_rng(0)
    for name in MAIN:
        check_first(at_random(robot, name, needs_of(name, robot), rng=1, coordinates=coordinates), rng)
    if kind in ("free", "planar", "universal", "spherical_exponential"):
        check_second(at_random(robot, "forward_dynamics", rng=1, coordinates=coordinates), rng)


@pytest.mark.parametrize("name", OF_TREES)
def test_every_function(name):
    robot = qddot.Robot(random_tree(3, rng=5, kinds=("spherical", "planar", "helical")).model(), compiled=False)
    check_first(at_random(robot, name, needs_of(name, robot), rng=2), np.random.default_rng(3))


@pytest.mark.slow
@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("kind", MOVING)
def test_every_function_of_every_kind_of_joint(kind, coordinates):
    robot = qddot.Robot(random_tree(3, rng=2, kinds=(kind, "revolute")).model(), compiled=False)
    for name in OF_TREES:
        point = at_random(robot, name, needs_of(name, robot), rng=1, coordinates=coordinates)
        check_first(point, np.random.default_rng(0))
        check_second(point, np.random.default_rng(1))


def test_mimic_joints_and_joints_of_the_user():
    coupled = random_tree(6, rng=3, kinds=("revolute", "prismatic", "helical"), mimic=True).model()
    assert coupled.is_coupled
    for robot in (qddot.Robot(coupled, compiled=False), bent_chain(3)):
        for name in ("inverse_dynamics", "forward_dynamics"):
            check_first(at_random(robot, name, rng=4), np.random.default_rng(5))
            check_second(at_random(robot, name, rng=4), np.random.default_rng(5))


@pytest.mark.parametrize("method", ["articulated_body", "composite_body_factored", "augmented"])
def test_every_formulation_has_the_same_derivatives(method):
    point = at_random(qddot.load("quadruped"), "forward_dynamics")
    cotangent, wrt = np.random.default_rng(0).standard_normal(18), ("q", "v", "tau")
    expected = point.interpreted(["vjp"], wrt, cotangent, method="articulated_body_classical")
    close(point.interpreted(["vjp"], wrt, cotangent, method=method), expected, 1e-9)  # M of condition 1e4


FREE = ("inertia", "placement", "armature", "damping", "friction", "stiffness", "spring_reference", "gravity")


@pytest.mark.parametrize("name", ["inverse_dynamics_with_forces", "forward_dynamics_with_forces"])
def test_free_parameters_gravity_and_external_forces(name):
    rng = np.random.default_rng(6)
    model = random_tree(3, rng=8, kinds=("free", "revolute", "prismatic")).model()
    robot = qddot.Robot(model, compiled=False)
    for free in ((*(x for x in FREE if x != "placement"),), ("placement",), ("mass", "com", "position")):
        point = at_random(robot, name, free=free, rng=7)
        given = {x: y + 0.1 * rng.random(y.shape) if x in FREE[2:6] else y for x, y in point.given.items()}
        # a rotation that is free moves as rotations do: what leaves them is NaN in kernels
        wrt = [x for x in given if x != "placement"]
        check_first(point._replace(given=given), rng, wrt)
    point = at_random(robot, name, free=("placement",), rng=7)
    shift = {"placement": np.zeros_like(point.given["placement"])}
    shift["placement"][:, :3, 3] = rng.standard_normal((model.n_links, 3))
    rates = point.first(shift)
    row = point.interpreted(["vjp"], ("placement",), np.ones_like(rates))
    same_sum(row, flat(shift), np.sum(rates))


@pytest.mark.parametrize("name", catalogue.LOOP_FUNCTIONS)
def test_loops(name):
    robot = qddot.load("fivebar")
    found = catalogue.lookup(name, "auto")[0]
    known = {"rows": robot._rows_for("constrained_forward_dynamics"), "prescribed": (0,)}
    point = at_random(robot, name, {need: known[need] for need in found.needs}, rng=1)
    point.given["q"][:] = robot.close_loops(robot.neutral() + 0.1)[0]
    check_first(point, np.random.default_rng(2))
    if "derivatives" not in name:  # those run on dual numbers themselves, which the reference then nests
        check_second(point, np.random.default_rng(3))


def test_second_derivatives_against_differences_of_first_ones():
    """Where the readable algorithm is itself one of derivatives."""
    robot = qddot.load("fivebar")
    rows = robot._rows_for("constrained_forward_dynamics")
    point = at_random(robot, "constrained_forward_dynamics_derivatives", {"rows": rows}, rng=1)
    point.given["q"][:] = robot.close_loops(robot.neutral() + 0.1)[0]
    wrt, rng, h = ("q", "v", "tau"), np.random.default_rng(4), 1e-6
    tangents, others = (rng.standard_normal((3, robot.nv)) for _ in range(2))

    def along(k):
        moved = {x: y + k * h * d for (x, y), d in zip(point.given.items(), others, strict=True)}
        return point._replace(given=moved).interpreted(["jvp"], wrt, *tangents)

    expected = (along(1) - along(-1)) / (2 * h)
    close(point.interpreted(["jvp", "jvp"], wrt, *tangents, *others), expected, DIFFERENCES)


@pytest.mark.parametrize("path", or_skipped(MARKED))
def test_real_robots(path):
    """By complex steps of the compiled algorithm's eager form, floating where they have legs."""
    robot = load(path)
    names, rng = dynamics_of(robot), np.random.default_rng(0)
    for name in names:
        point = at_random(robot, name, rng=1)
        tangents = {x: rng.standard_normal(s) for x, s in point.sizes(point.given).items()}
        rates = point.first(tangents)
        cotangent = rng.standard_normal(robot.nv)
        row = robot.kernel(name, vjp=True)(*point.given.values(), cotangent)
        size = np.abs(row) @ np.abs(flat(tangents))
        assert abs(row @ flat(tangents) - cotangent @ rates) <= 1e-8 * size


# ---- kernels -----------------------------------------------------------------------------------------------------------


def _quadruped(**options):
    robot, rng = qddot.load("quadruped"), np.random.default_rng(0)
    q, v = robot.random_state(rng, 37)
    tau, w = rng.standard_normal((2, 37, robot.nv))
    return robot, robot.kernel("forward_dynamics", vjp=True, **options), (q, v, tau, w)


def test_rows_agree_with_matrices():
    robot, kernel, (q, v, tau, w) = _quadruped()
    d = robot.forward_dynamics_derivatives(q, v, tau)
    parts = kernel.parts(kernel(q, v, tau, w))
    assert list(parts) == ["q", "v", "tau"]
    for found, matrix in zip(parts.values(), d, strict=True):
        assert np.allclose(found, np.einsum("...i,...ij->...j", w, matrix), rtol=1e-9, atol=1e-9)
    assert parts["v"].base is not None
    tangents = np.random.default_rng(1).standard_normal((3, 37, robot.nv))
    rates = robot.kernel("forward_dynamics", jvp=True)(q, v, tau, *tangents)
    expected = sum((m @ t[..., None])[..., 0] for m, t in zip(d, tangents, strict=True))
    assert np.allclose(rates, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("wrt", [None, "tau", ("q", "v"), ("tau", "gravity"), ("v", "tau", "inertia")])
def test_known_results_give_the_same_products_by_fewer_operations(wrt):
    robot, kernel, (q, v, tau, w) = _quadruped(free=("inertia", "gravity"), wrt=wrt)
    known = _quadruped(free=("inertia", "gravity"), wrt=wrt, known_result=True)[1]
    assert known.names == ("q", "v", "tau", "inertia", "gravity", "result", "cotangent")
    assert known.info.parts == kernel.info.parts
    inputs = (q, v, tau, robot.parameters("inertia"), robot.parameters("gravity"))
    found, expected = known(*inputs, robot.forward_dynamics(q, v, tau), w), kernel(*inputs, w)
    assert np.allclose(found, expected, rtol=1e-9, atol=1e-10 * np.abs(expected).max())
    if wrt is None:
        assert known.info.instructions < 0.75 * kernel.info.instructions


def test_a_known_result_is_taken_as_it_comes():
    """Where it is not finite the sample is lost; nothing is computed anew."""
    robot, known, (q, v, tau, w) = _quadruped(known_result=True)
    a = robot.forward_dynamics(q, v, tau)
    spoiled = a.copy()
    spoiled[4, -1] = np.nan
    lost = np.isnan(known(q, v, tau, spoiled, w)).any(axis=-1)
    assert list(np.flatnonzero(lost)) == [4]
    assert not np.allclose(known(q, v, tau, a + 1.0, w), known(q, v, tau, a, w))
    rates = robot.kernel("forward_dynamics", jvp=True, known_result=True)
    tangents = np.random.default_rng(1).standard_normal((3, 37, robot.nv))
    plain = robot.kernel("forward_dynamics", jvp=True)(q, v, tau, *tangents)
    assert np.allclose(rates(q, v, tau, a, *tangents), plain, rtol=1e-9, atol=1e-10 * np.abs(plain).max())


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        ("forward_dynamics", {}, "add vjp=True or jvp=True"),
        ("forward_dynamics", {"vjp": 2}, "second order"),
        ("inverse_dynamics", {"vjp": True}, "is for vjp=True or jvp=True of forward_dynamics"),
    ],
)
def test_known_results_are_refused_where_they_do_not_help(function, options, message):
    with pytest.raises(InputError, match=message):
        qddot.load("scara").kernel(function, known_result=True, **options)


def test_ambient_gradients_are_those_of_normalized_configurations():
    robot, kernel, (q, v, tau, w) = _quadruped(coordinates="ambient", wrt="q")
    gradient = kernel(q, v, tau, w)
    assert gradient.shape == (37, robot.nq)
    assert np.abs(np.sum(gradient[:, 3:7] * q[:, 3:7], axis=-1)).max() < 1e-12 * np.abs(gradient).max()
    tangent = robot.kernel("forward_dynamics", vjp=True, wrt="q")(q, v, tau, w)
    own = np.array([products.tangent_gradient(robot.model, x, g) for x, g in zip(q, gradient, strict=True)])
    assert np.allclose(own, tangent, rtol=1e-10, atol=1e-10 * np.abs(tangent).max())
    h, k = 1e-6, 5  # not along the sphere: both are made unit again
    up, down = (robot.forward_dynamics(robot.normalize(q + s * h * np.eye(robot.nq)[k]), v, tau) for s in (1, -1))
    assert np.allclose(np.sum(w * (up - down), axis=-1) / (2 * h), gradient[:, k], rtol=1e-5, atol=1e-5)


def test_lanes_have_the_same_bits_and_the_interpreter_the_numbers():
    robot, kernel, arrays = _quadruped()
    expected = kernel(*arrays)
    for lanes in (1, 2, 16):
        assert np.array_equal(_quadruped(lanes=lanes)[1](*arrays), expected)
    product = products.Product(("vjp",), ("q", "v", "tau"), "tangent")
    line = pipeline.program_for(robot.model, pipeline.Request("forward_dynamics", product=product), kernel.output)[1]
    close(expected[5], interpreter.run(line, np.concatenate([x[5] for x in arrays]).tolist()))  # another sine


def test_single_precision_packed_results_and_other_targets():
    robot, kernel, arrays = _quadruped()
    expected = kernel(*arrays)
    single = robot.kernel("forward_dynamics", vjp=True, dtype="float32")(*arrays)
    assert single.dtype == np.float32
    assert np.abs(single - expected).max() < 1e-4 * np.abs(expected).max()
    packed = robot.kernel("forward_dynamics", vjp=True, packed=True)
    assert np.array_equal(packed.unpack(packed(*arrays)), expected)


def test_a_grid_of_threads_gives_the_bits_of_this_processor():
    dtype = "float32"
    robot, kernel, arrays = _quadruped(dtype=dtype)
    product = products.Product(("vjp",), ("q", "v", "tau"), "tangent")
    request = pipeline.Request("forward_dynamics", dtype=dtype, product=product)
    program = pipeline.program_for(robot.model, request, kernel.output)[1]
    emulated = Emulated(program, list(kernel.inputs), kernel.output, dtype, nvptx.named(""), grid.GridOptions())
    arrays = [np.ascontiguousarray(x, dtype) for x in arrays]
    out = np.full((37, *kernel.output), np.nan, dtype)
    emulated("rows", *arrays, out=out)
    assert np.array_equal(out, kernel(*arrays))
    card = robot.kernel("forward_dynamics", vjp=True, target="cuda", dtype=dtype)
    assert "ptx_kernel" in card.llvm_ir
    assert card.info.product == "VJP"


def test_batches_strides_and_lost_samples():
    robot, kernel, (q, v, tau, w) = _quadruped()
    expected = kernel(q, v, tau, w)
    assert np.array_equal(kernel(q[::2], v[::2], tau[::2], w[::2]), expected[::2])
    assert np.array_equal(kernel(np.asfortranarray(q), v, tau, w), expected)
    assert kernel(q[:0], v[:0], tau[:0], w[:0]).shape == (0, 3 * robot.nv)
    rows = kernel(q[:3, None], v[:3, None], tau[:3, None], np.eye(robot.nv))
    assert rows.shape == (3, robot.nv, 3 * robot.nv)
    assert np.array_equal(kernel(q, v, tau, w, out=np.empty_like(expected)), expected)
    for k, x in enumerate((q, v, tau, w)):
        spoiled = [y.copy() for y in (q, v, tau, w)]
        spoiled[k][4, -1] = np.nan
        found = kernel(*spoiled)
        assert np.isnan(found[4]).any(), x
        keep = np.arange(37) != 4
        assert np.array_equal(found[keep], expected[keep])
    longer = q.copy()
    longer[7, 3:7] *= 1.01
    assert np.isnan(kernel(longer, v, tau, w)[7, :3]).all()  # no unit quaternion; nothing depends on where it stands


def test_second_order_kernels():
    robot = qddot.load("scara")
    rng = np.random.default_rng(0)
    q, v = robot.random_state(rng, 5)
    tau, w, c = rng.standard_normal((3, 5, robot.nv))
    row = rng.standard_normal((5, 3 * robot.nv))
    kernel = robot.kernel("forward_dynamics", vjp=2)
    assert kernel.names == ("q", "v", "tau", "cotangent", "second_cotangent")
    parts = kernel.parts(kernel(q, v, tau, w, row))
    assert list(parts) == ["q", "v", "tau", "cotangent"]
    matrices = robot.forward_dynamics_derivatives(q, v, tau)
    expected = sum((m @ x[..., None])[..., 0] for m, x in zip(matrices, np.split(row, 3, axis=-1), strict=True))
    assert np.allclose(parts["cotangent"], expected, rtol=1e-9, atol=1e-9)
    d2 = robot.forward_dynamics_second_derivatives(q, v, tau)
    both = robot.kernel("forward_dynamics", jvp=2, wrt="q")
    assert both.names == ("q", "v", "tau", "q_tangent", "q_second_tangent")
    assert np.allclose(both(q, v, tau, w, c), np.einsum("...ijk,...j,...k->...i", d2.dqq, w, c), rtol=1e-9, atol=1e-9)
    mixed = robot.kernel("forward_dynamics", vjp=True, jvp=True, wrt=("q",))
    assert mixed.names == ("q", "v", "tau", "cotangent", "q_tangent")
    assert np.allclose(mixed(q, v, tau, w, c), np.einsum("...i,...ijk,...k->...j", w, d2.dqq, c), rtol=1e-9, atol=1e-9)


def test_what_a_kernel_says_of_itself():
    robot = qddot.load("puma560")
    mass = f"{robot.model.link_names[3]}.mass"
    kernel = robot.kernel("inverse_dynamics", vjp=True, free=("gravity", mass), wrt=[mass, "q"])
    assert kernel.names == ("q", "v", "a", "gravity", mass, "cotangent")
    assert kernel.info.parts == (("q", (6,)), (mass, ()))
    assert kernel.info.product == "VJP"
    assert "VJP of inverse_dynamics" in repr(kernel)
    assert "adjoint" in kernel.explain()
    assert "define" in kernel.llvm_ir
    arrays = (*robot.random_state(0), np.ones(6), robot.parameters("gravity"), robot.parameters(mass), np.ones(6))
    again = pickle.loads(pickle.dumps(kernel))
    assert np.array_equal(again(*arrays), kernel(*arrays))
    assert kernel.parts(kernel(*arrays))[mass].shape == ()
    assert robot.kernel("inverse_dynamics", vjp=True) is robot.kernel("inverse_dynamics", vjp=1)
    with pytest.raises(InputError, match="last axis must have 7 numbers"):
        kernel.parts(np.zeros((3, 6)))
    with pytest.raises(InputError, match="has no parts"):
        robot.kernel("mass_matrix").parts(np.zeros(6))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"vjp": 3}, "vjp=3 is not known; take True, or 2"),
        ({"jvp": "yes"}, "jvp='yes' is not known"),
        ({"vjp": 2, "jvp": True}, "taken once each"),
        ({"wrt": "q"}, "wrt= is for products with the Jacobian; add vjp=True or jvp=True"),
        ({"coordinates": "ambient"}, "coordinates= is for products"),
        ({"vjp": True, "wrt": ()}, "names no input"),
        ({"vjp": True, "wrt": ("q", "q")}, "names an input twice"),
        ({"vjp": True, "wrt": 3}, "give names of inputs, some of q, v, tau"),
        ({"vjp": True, "coordinates": "body"}, "take 'tangent' or 'ambient'"),
        ({"vjp": True, "form": "rolled"}, "form='rolled' has no vjp"),
    ],
)
def test_what_is_refused(options, says):
    with pytest.raises(InputError, match=says):
        qddot.load("scara").kernel("forward_dynamics", **options)
    with pytest.raises(UnknownNameError, match="no input 'velocity'"):
        qddot.load("scara").kernel("forward_dynamics", vjp=True, wrt=("velocity",))


def test_code_that_is_too_large(monkeypatch):
    monkeypatch.setattr(pipeline, "MOST_INSTRUCTIONS", 100)
    robot = qddot.chain(3)
    with pytest.raises(KernelTooLargeError, match=r"VJP of forward_dynamics .* multiply by its matrices"):
        robot.kernel("forward_dynamics", vjp=True)
    with pytest.raises(KernelTooLargeError, match=r"fewer inputs \(wrt=\)"):
        robot.kernel("coriolis_matrix", vjp=True)


def test_costs():
    """Operations of products with the Jacobian over those of the function: published nowhere, so ours is kept."""
    for name, most in (("puma560", 2.6), ("quadruped", 2.6)):
        model = qddot.load(name).model
        for function in ("inverse_dynamics", "forward_dynamics"):
            one, by = (
                pipeline.cheapest(model, function, "auto", **({"product": p} if p else {})).instructions
                for p in (None, products.Product(("vjp",), ("q", "v", "a" if "inverse" in function else "tau"), "tangent"))
            )
            assert by / one < most, (name, function)


def test_a_fault_is_found(monkeypatch):
    """Exchanged arguments of a product: the slopes of x·y are y and x."""
    own = differentiate._times_slope

    def wrong(graph, node, op, args, k, factor):
        return graph.binary("mul", factor, args[k]) if op == "mul" else own(graph, node, op, args, k, factor)

    robot = qddot.Robot(dataclasses.replace(qddot.load("scara").model), compiled=False)
    check_first(at_random(robot, "inverse_dynamics"), np.random.default_rng(0))
    monkeypatch.setattr(differentiate, "_times_slope", wrong)
    with pytest.raises(AssertionError):
        check_first(at_random(robot, "inverse_dynamics"), np.random.default_rng(0))


def test_the_way_by_the_multiplier():
    """M⁻¹ w, and inverse dynamics with it: what docs/derivatives.md has for those who hold the accelerations."""
    robot, kernel, (q, v, tau, w) = _quadruped()
    lam = robot.kernel("forward_dynamics", vjp=True, wrt="tau")(q, v, tau, w)
    a = robot.forward_dynamics(q, v, tau)
    found = robot.kernel("inverse_dynamics", vjp=True, wrt=("q", "v"))(q, v, a, -lam)
    expected = kernel(q, v, tau, w)
    assert np.allclose(np.concatenate([found, lam], axis=-1), expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())
