"""Digests of what kernels, rollouts and `random_state` of the embedded robots compute, and the golden values of them.

    python -m tests.support.golden_bits pendulum scara --lanes 1 8     prints the digests, of these robots in these widths
    python -m tests.support.golden_bits --write                        writes tests/golden/bits.json anew, for all robots

There is one digest for all lane widths: they give the same bits, and so do all processors with fused multiply-adds
(docs/bits.md). The file changes only with a decision that changes bits; the commit says which.

What passes through the C library (arctan2) is left out, and so are functions that take minutes to compile.
"""

import argparse
import hashlib
import json
import warnings

import numpy as np

import qddot
from qddot.dynamics import catalogue
from qddot.dynamics.catalogue import ALL, INPUT_AXES, LOOP_FUNCTIONS
from qddot.robots import NAMES
from qddot.simulation.integrators import INTEGRATORS
from tests.support.paths import GOLDEN
from tests.support.targets import restricted

FILE = GOLDEN / "bits.json"
LANES = (1, 2, 4, 8, 16)
DTYPES = ("float64", "float32")
STATES = 37  # two blocks of sixteen lanes and a rest
# most degrees of freedom, where a kernel of more takes minutes
LIMITS = {
    **{name: 7 for name in ALL if "inertia_derivatives" in name},
    **{name: 12 for name in ALL if name.endswith(("derivatives", "derivatives_with_forces", "regressor"))},
    **{name: 8 for name in ALL if name.startswith("constrained") and "derivatives" in name},
    "inverse_dynamics_derivatives": 18,
    "constrained_forward_dynamics": 18,
    "constraint_jacobian_derivatives": 8,
}
LIMITS |= dict.fromkeys(catalogue.CUBIC, 3)


def names_of(robot):
    """The functions whose kernels are compared: of a robot with loops its own, and of its spanning tree the others."""
    own = ALL if robot.model.is_constrained else {n: f for n, f in ALL.items() if n not in LOOP_FUNCTIONS}
    return [name for name in own if robot.nv <= LIMITS.get(name, 24)]


def given(robot):
    """A batch of inputs of every kind, float64."""
    rng = np.random.default_rng(0)
    pairs = [robot.random_state(rng) for _ in range(STATES)]
    known = {"q": np.stack([q for q, _ in pairs]), "v": np.stack([v for _, v in pairs])}
    others = {name: axes(robot.model) for name, axes in INPUT_AXES.items() if name not in known}
    return known | {name: rng.standard_normal((STATES, *shape)) for name, shape in others.items()}


def independent_rows(robot, frame):
    """The first rows of a frame's twist that do not depend on those before them."""
    J, rows = robot.jacobian(robot.random_state(0)[0], frame), []
    for r in range(6):
        if np.linalg.matrix_rank(J[[*rows, r]], tol=1e-3) > len(rows):
            rows.append(r)
    return rows


def kernel_of(robot, name, **options):
    """The kernel of a function, with a choice of everything that it needs."""
    tree = robot.spanning_tree() if robot.model.is_constrained and name not in LOOP_FUNCTIONS else robot
    needs = {"frame": robot.link_names[-1], "prescribed": tuple(range(0, robot.nv, 2)), "by": ("q", 0)}
    chosen = {need: needs[need] for need in ALL[name].needs if need in needs}
    if ALL[name].is_task:
        chosen["rows"] = independent_rows(tree, needs["frame"])
    return tree.kernel(name, **chosen, **options)


def digest(*arrays):
    """Of the bits; NaN counts as one number, whose bits are the processor's own."""
    found = hashlib.sha256()
    for x in arrays:
        array = np.array(x)
        array[np.isnan(array)] = np.nan
        found.update(array.tobytes())
    return found.hexdigest()[:12]


def of_kernel(robot, known, name, dtype, lanes):
    """The digest of a batch, of which one state alone must have the same bits; None if it passes through the C library."""
    kernel = kernel_of(robot, name, dtype=dtype, lanes=lanes)
    if kernel.info.ops.get("arctan2"):
        return None
    arrays = [known[x].astype(dtype) for x in ALL[name].inputs]
    batch = kernel(*arrays)
    assert np.array_equal(kernel(*(x[5] for x in arrays)), batch[5], equal_nan=True), (robot.name, name, dtype, lanes)
    return digest(batch)


def of_rollout(robot, known, integrator, dtype, lanes):
    """The digest of forty steps under random forces; robots with loops begin at rest, where they are closed."""
    q, v, tau = (known[x] for x in ("q", "v", "tau"))
    if robot.model.is_constrained:
        q, v = np.tile(robot.neutral(), (STATES, 1)), np.zeros_like(v)
    held = np.repeat(tau[:, None], 40, axis=1)
    doubles = None if lanes is None else lanes if dtype == "float64" else max(1, lanes // 2)
    with restricted(doubles), warnings.catch_warnings():
        warnings.simplefilter("ignore", qddot.QddotWarning)
        run = qddot.Robot(robot.model).simulate(
            q, v, held, dt=2.0**-12, steps=40, record=8, integrator=integrator, dtype=dtype
        )
    return digest(run.q, run.v)


def law_of_everything(t, q, v):
    """A law with every function that traced values have."""
    out = np.zeros(2)
    out[0] = np.tanh(4.0 * v[0]) + np.interp(q[0], [-1.0, 0.0, 1.0], [0.5, 0.0, -0.25]) - np.sign(v[0]) * abs(v[1]) ** 1.3
    out[1] = np.log(1.0 + q[1] ** 2) * np.exp(-np.hypot(v[0], 0.5)) + np.where(
        (v[1] >= 0.0) & (q[1] < 2.0), t, -np.sqrt(t + 0.25)
    )
    return np.clip(out - np.minimum(v, q) ** 3 + np.arctan(np.maximum(q, 2.0 * v)), -5.0, 4.0)


def of_law(dtype, lanes):
    """The digest of forty steps of the double pendulum under that law."""
    robot = qddot.load("double_pendulum")
    known = given(robot)
    with restricted(None if lanes is None else lanes if dtype == "float64" else max(1, lanes // 2)):
        run = qddot.Robot(robot.model).simulate(
            known["q"], known["v"], law_of_everything, dt=2.0**-10, steps=40, record=8, dtype=dtype
        )
    return digest(run.q, run.v, run.tau)  # the steps alone would round the last bits of a law away


def integrators_of(robot):
    """Those that are compared, with the types that they step in."""
    few = robot.nv <= 7
    for name, found in INTEGRATORS.items():
        if name == "rk4" or (few and not (found.implicit and robot.model.is_constrained)):
            yield name, DTYPES[:1] if found.implicit else DTYPES


def computed(name, lanes=None, part=(0, 1)):
    """Digests of one robot, one a type, by what is computed; `part` (k, n) takes the k-th of every n functions."""
    robot = qddot.load(name)
    known, found = given(robot), {}
    if part[0] == 0:
        found["random_state"] = [digest(known["q"], known["v"])]
        if name == "double_pendulum":
            found["simulate with a law"] = [of_law(dtype, lanes) for dtype in DTYPES]
    for function in names_of(robot)[part[0] :: part[1]]:
        found[function] = [of_kernel(robot, known, function, dtype, lanes) for dtype in DTYPES]
    for integrator, dtypes in list(integrators_of(robot))[part[0] :: part[1]]:
        found[f"simulate {integrator}"] = [of_rollout(robot, known, integrator, dtype, lanes) for dtype in dtypes]
    return {what: " ".join(digests) for what, digests in found.items() if None not in digests}


def golden():
    """The golden values, by robot and by what is computed."""
    return json.loads(FILE.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("robots", nargs="*", help="all unless given")
    parser.add_argument("--lanes", type=int, nargs="*", default=[None], help="this processor's unless given")
    parser.add_argument(
        "--part", type=int, nargs=2, default=(0, 1), metavar=("K", "N"), help="the k-th of every n functions"
    )
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name}")
    options = parser.parse_args()
    found = {}
    for name in options.robots or NAMES:
        for lanes in options.lanes:
            here = computed(name, lanes, options.part)
            assert found.setdefault(name, here) == here, f"{name}: {lanes} lanes give other bits"
    if options.write:
        FILE.write_text(json.dumps({**(golden() if options.robots else {}), **found}, indent=0) + "\n")
    else:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
