"""Rolled code against straight-line code, by the interpreter."""

import numpy as np

import qddot
from qddot.compiler.ir import interpreter, loop_program
from qddot.dynamics import trace
from qddot.dynamics.catalogue import BY_SCALAR, DERIVATIVES_WITH_FORCES, FUNCTIONS

# The same operations but for constants that straight-line code folds into others: a few units in the last place, times
# the condition of M where it is divided by.
TOLERANCE = 1e-13
SOLVED = 1e-10
INVERSES = ("mass_matrix_inverse", "operational_space_inverse_inertia")
KNOWN = FUNCTIONS | DERIVATIVES_WITH_FORCES | BY_SCALAR


def inputs_of(model, name, rng=0, count=None):
    rng = np.random.default_rng(rng)
    robot = qddot.Robot(model)
    many = [robot.random_state(rng) for _ in range(count or 1)]
    q, v = (np.stack(x) for x in zip(*many, strict=True))
    known = {"q": q, "v": v, "a": rng.standard_normal(v.shape), "f_ext": rng.standard_normal((len(q), model.n_links, 6))}
    known |= {"tau": known["a"], "df_ext_dp": rng.standard_normal((len(q), model.n_links, 6))}
    arrays = [known[x] for x in KNOWN[name].inputs]
    return arrays if count else [x[0] for x in arrays]


def needs_only(name, needs):
    return {key: value for key, value in needs.items() if key in KNOWN[name].needs}


def needs_of(model, name):
    """The frame of a link in the middle; every third DoF is prescribed."""
    middle = model.link_names[(model.n_links + 1) // 2]
    return needs_only(name, {"frame": middle, "prescribed": tuple(range(0, model.nv, 3))})


def tolerance_of(name):
    solved = name.startswith(("forward_dynamics", "hybrid_dynamics")) or name in INVERSES
    return SOLVED if solved else TOLERANCE


def close(x, y, name, tolerance=None):
    tolerance = tolerance or tolerance_of(name)
    assert np.max(np.abs(np.subtract(x, y)), initial=0.0) <= tolerance * max(1.0, np.max(np.abs(y), initial=0.0))


def agree(model, name, method, regroup=True, tolerance=None, **more):
    needs = needs_of(model, name) | more
    loops = trace.rolled(model, name, method, regroup=regroup, **needs)
    line = trace.traced(model, name, method, regroup=regroup, **needs)
    x = np.concatenate([a.reshape(-1) for a in inputs_of(model, name)])
    expected = interpreter.run(line, x)
    close(loop_program.run(loops, x), expected, name, tolerance)
    close(loop_program.run(loop_program.fused(loops), x), expected, name, tolerance)
