"""Compiled code against the plain algorithms on random trees made to be difficult: `python -m tests.random_trees`.

All kinds of joints; placements and configurations at multiples of π/2 and 1e-14…1e-6 beside them; lengths and masses from
1e-6 to 1e8, one scale for a robot or another for each link. Where an entry of a result differs from that of the plain
algorithm by more than `ALIKE`, both are compared with 50 digits. The bound, entry by entry:

    |compiled - exact| ≤ FACTOR · (|plain - exact| + what one rounding of every number of model and state does)

The error of the plain algorithm is the largest of its own and of a few runs in which each operation is rounded up or
down at random (Monte Carlo arithmetic): by itself it may be right by luck.

A degree of freedom is measured by its own inertia: forces over √M_kk, accelerations times it, entries of M over
√(M_jj M_kk). The error of the plain algorithm is the largest over the degrees of freedom in this measure, of the worse of
the function's first formulation and of the one that was compiled, but for forward dynamics no worse than a mass matrix of
condition 1e5 (scaled to a unit diagonal) explains. The last term is the largest change of the entry over a few random ways
to round. States that are refused as singular are counted. Exits with 1 if a result is beyond the bound.
"""

import argparse
import dataclasses
import math
import operator
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import mpmath
import numpy as np

import qddot
from benchmarks.accuracy import in_scalars
from qddot.compiler.ir import interpreter
from qddot.dynamics.catalogue import FUNCTIONS
from qddot.dynamics.choose import cheapest
from qddot.errors import SingularMassMatrixError
from qddot.joints import Own, SphericalEuler, SphericalExponential
from qddot.robots.generators import random_tree
from qddot.spatial import Transform
from qddot.spatial.rotation import IDENTITY, Rotation

FUNCTION_NAMES = ("inverse_dynamics", "mass_matrix", "forward_dynamics")
ALIKE = 1e-12  # of an entry
FACTOR = 100.0  # compiled code takes other formulations, whose constants in front of rounding differ by this much
ROUNDINGS = 4  # ways to round the model and the state
DIGITS = 50
EPS = 2.0**-53
REFUSED = (np.inf, np.inf, np.inf)  # in the place of results
CONDITION = 1e5  # ten times what qddot.dynamics.conditioning allows at the configurations that it looks at


# ---- robots --------------------------------------------------------------------------------------------------------


def beside_quarters(rng, count):
    """Multiples of π/2, exactly or 1e-14…1e-6 beside; now and then any angle."""
    out = rng.integers(-3, 4, count) * (np.pi / 2)
    out += rng.choice((0.0, 1.0, -1.0), count) * 10.0 ** rng.uniform(-14.0, -6.0, count)
    return np.where(rng.random(count) < 0.15, rng.uniform(-3.0, 3.0, count), out)


def magnitude(rng):
    return 10.0 ** rng.uniform(-6.0, 8.0)


def difficult_robot(seed):
    """A random tree with placements beside quarter turns, and lengths and masses of any scale."""
    rng = np.random.default_rng(seed)
    model = random_tree(int(min(rng.integers(1, 7, 2))), rng=rng, mimic=rng.random() < 0.2, order="random").model()
    one = magnitude(rng), magnitude(rng)
    mixed = rng.random() < 0.5
    placement, inertia = [model.placement[0]], [model.inertia[0]]
    for i, _ in model.outward():
        length, mass = (magnitude(rng), magnitude(rng)) if mixed else one
        p = rng.uniform(-1.0, 1.0, 3) * (rng.random(3) < 0.6) * length
        placement.append(qddot.pose(p, beside_quarters(rng, 3)))
        own = length if rng.random() < 0.5 else one[0]  # a body that is small next to its distance from the others
        G = model.inertia[i]
        h = tuple(mass * own * x for x in G.h)
        inertia.append(G._replace(m=mass * G.m, h=h, I=tuple(tuple(mass * own**2 * x for x in row) for row in G.I)))
    return dataclasses.replace(model.without_passive_forces(), placement=tuple(placement), inertia=tuple(inertia))


def difficult_state(model, rng):
    robot = qddot.Robot(model, compiled=False)
    q, v = robot.random_state(rng)
    for i, _ in model.outward():
        joint, place = model.joint[i], model.slots[i].q
        if joint.nq == joint.nv and not isinstance(joint, SphericalEuler | SphericalExponential | Own):
            angles = beside_quarters(rng, joint.nq)
            q[place] = np.where(np.resize(joint.is_angle, joint.nq), angles, q[place])
    return q, v, rng.standard_normal(model.nv)


# ---- results ---------------------------------------------------------------------------------------------------------


def inputs(name, state):
    known = dict(zip(("q", "v", "a"), state, strict=True)) | {"tau": state[2]}
    return [known[x] for x in FUNCTIONS[name].inputs]


def plain(model, name, state, method=None):
    methods = FUNCTIONS[name].methods
    with np.errstate(all="ignore"):
        return np.asarray(methods[method or next(iter(methods))](model, *inputs(name, state)), dtype=float)


def compiled(model, name, state, by_llvm):
    """By LLVM, or by the interpreter of the same program, which gives the same bits sooner; and the formulation."""
    if by_llvm:
        kernel = qddot.Robot(model).kernel(name, lanes=1)
        return kernel(*inputs(name, state)), kernel.info.method
    choice = cheapest(model, name, "auto")
    found = interpreter.run(choice.line, np.concatenate(inputs(name, state)).tolist())
    return np.array(found, dtype=float).reshape(FUNCTIONS[name].output(model)), choice.method


def exact(model, name, state, rng=None):
    """With 50 digits; with a generator, of numbers that are each rounded up or down once."""

    def number(x):
        x = mpmath.mpf(x)
        return x if rng is None else x * (1 + EPS * int(rng.integers(-1, 2)))

    arrays = [np.array([number(x) for x in a.tolist()], dtype=object) for a in inputs(name, state)]
    if rng is not None:
        model = turned(model, rng)
    return np.asarray(next(iter(FUNCTIONS[name].methods.values()))(in_scalars(model, number), *arrays), dtype=object)


class Rounded:
    """A float whose every operation is rounded up or down at random."""

    __slots__ = ("x",)
    __array_ufunc__ = None
    rng = np.random.default_rng(0)

    def __init__(self, x):
        self.x = float(x)

    def _with(self, operation, *others):
        if not all(isinstance(y, Rounded | float | int) for y in others):
            return NotImplemented
        exact = operation(self.x, *map(float, others))
        return Rounded(exact * (1.0 + 2.0 * EPS * int(self.rng.integers(-1, 2))))

    def __add__(self, y):
        return self._with(operator.add, y)

    def __sub__(self, y):
        return self._with(operator.sub, y)

    def __rsub__(self, y):
        return self._with(lambda x, y: y - x, y)

    def __mul__(self, y):
        return self._with(operator.mul, y)

    def __truediv__(self, y):
        return self._with(operator.truediv, y)

    def __rtruediv__(self, y):
        return self._with(lambda x, y: y / x, y)

    def __neg__(self):
        return Rounded(-self.x)

    def __lt__(self, y):
        return self.x < float(y)

    def __gt__(self, y):
        return self.x > float(y)

    def __float__(self):
        return self.x

    def sin(self):
        return self._with(math.sin)

    def cos(self):
        return self._with(math.cos)

    def sqrt(self):
        return self._with(math.sqrt)

    def arctan2(self, x):
        return Rounded(math.atan2(float(self), float(x)))

    __radd__, __rmul__ = __add__, __mul__


def by_chance(model, name, state):
    """The plain algorithm with every operation rounded at random."""
    arrays = [np.array([Rounded(x) for x in a.tolist()], dtype=object) for a in inputs(name, state)]
    return np.asarray(next(iter(FUNCTIONS[name].methods.values()))(in_scalars(model, Rounded), *arrays), dtype=object)


def turned(model, rng):
    """Placements turned by a rounding of 1: entries of rotations are known no better."""
    placement = []
    for T in model.placement:
        small = qddot.pose((0.0, 0.0, 0.0), rng.integers(-1, 2, 3) * 2.0 * EPS)
        rows = np.array(T.R.rows) @ np.array(small.R.rows) if T.R is not IDENTITY else None
        placement.append(T if rows is None else Transform(Rotation(_tuples(rows)), T.p))
    return dataclasses.replace(model, placement=tuple(placement))


def _tuples(rows):
    return tuple(tuple(row) for row in rows.tolist())


def judged(seed, by_llvm=False):
    """For each function that differs: seed, name, error over bound, and the entry by compiled code, plainly and exactly."""
    rng = np.random.default_rng((seed, 1))
    model = difficult_robot(seed)
    state, found = difficult_state(model, rng), []
    for name in FUNCTION_NAMES:
        try:
            if name == "forward_dynamics" and qddot.Robot(model, compiled=False).massless_joints:
                continue
            (ours, method), theirs = compiled(model, name, state, by_llvm), plain(model, name, state)
        except (SingularMassMatrixError, ZeroDivisionError):
            continue
        if name == "forward_dynamics" and np.isnan(ours).any() and not np.isnan(theirs).any():
            found.append((seed, name, 0.0, *REFUSED))
            continue
        differs = ~(np.abs(ours - theirs) <= ALIKE * np.abs(theirs))
        if differs.any():
            found.append((seed, name, *_against_digits(model, name, method, state, ours, theirs, differs, rng)))
    return found


def _against_digits(model, name, method, state, ours, theirs, differs, rng):
    with mpmath.workdps(DIGITS):
        right = exact(model, name, state)
        size = np.sqrt(np.diag(plain(model, "mass_matrix", state)))
        unit = {"inverse_dynamics": size, "mass_matrix": np.outer(size, size), "forward_dynamics": 1.0 / size}[name]
        first, same = (np.max(abs(x - right) / unit) for x in (theirs, plain(model, name, state, method)))
        if name == "forward_dynamics":
            same = min(same, EPS * CONDITION * np.max(abs(right) / unit))
        off, allowed = np.where(differs, abs(ours - right), 0), FACTOR * max(first, same) * unit
        if not np.all(off <= allowed):  # which decides most, and takes less time
            moved = [abs(exact(model, name, state, rng) - right) for _ in range(ROUNDINGS)]
            chance = [by_chance(model, name, state).astype(float) for _ in range(ROUNDINGS)]
            luckless = max(first, same, *(np.max(abs(x - right) / unit) for x in chance))
            allowed = FACTOR * (luckless * unit + np.max(moved, axis=0))
        ratios = off / np.where(allowed == 0, mpmath.mpf(10) ** -400, allowed)
        worst = np.unravel_index(np.argmax(ratios), ratios.shape)
        return float(ratios[worst]), float(ours[worst]), float(theirs[worst]), float(right[worst])


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m tests.random_trees", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the seed to begin with")
    parser.add_argument("--llvm", action="store_true", help="machine code in place of the interpreter of the program")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", qddot.QddotWarning)
    seeds = range(options.first, options.first + options.count)
    with ProcessPoolExecutor(options.processes) as pool:
        found = [x for row in pool.map(partial(judged, by_llvm=options.llvm), seeds, chunksize=16) for x in row]
    beyond = [x for x in found if not x[2] <= 1.0]
    refused = sum(x[3:] == REFUSED for x in found)
    for seed, name, ratio, *values in beyond:
        ours, theirs, right = values
        print(f"seed {seed} {name}: {ratio:.2g} times the bound; compiled {ours!r}, plain {theirs!r}, exact {right!r}")
    largest = max((x[2] for x in found), default=0.0)
    compared = len(found) - refused
    print(f"{options.count} robots; {compared} results compared with {DIGITS} digits; {len(beyond)} beyond the bound")
    print(f"{refused} states of forward dynamics refused as singular")
    print(f"the largest error is {largest:.2g} of the bound")
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main())
