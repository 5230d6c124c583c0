"""What a robot can compute, by name: the algorithm of each method, its inputs and the shape of its result.

This is where algorithms meet the compiler: a function of a model and arrays becomes a kernel of that model.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from qddot import parameters
from qddot.algorithms import (
    articulated_body,
    classical,
    composite_body,
    coriolis,
    energy,
    factorization,
    kinematics,
    newton_euler,
)
from qddot.algorithms.passive import passive_forces
from qddot.compiler import machine
from qddot.compiler.cache import default_cache
from qddot.compiler.kernel import Info, Kernel, Shape
from qddot.compiler.machine import Code
from qddot.errors import KernelTooLargeError, unknown
from qddot.joints import Free, Spherical
from qddot.model import Model
from qddot.regroup import regrouped, simplified
from qddot.scalars import less, stack, where
from qddot.spatial import Inertia, Transform

if TYPE_CHECKING:  # tracing and rendering are loaded when something is to be compiled
    from qddot.compiler.expr import Graph
    from qddot.compiler.program import Program

Algorithm = Callable[..., Any]

MOST_INSTRUCTIONS = 150_000  # some half a minute to compile
UNIT_QUATERNION_TOLERANCE = 2e-6  # of the square: looser than rounding of float32 states, tighter than any real mistake


class Function(NamedTuple):
    """Inputs by name, the shape of the result, and the formulations that compute it, the paper's own first.

    `needs` names what it also takes; `auto` lists the formulations of which the one with fewest operations is compiled.
    `simplify` is the rewriting of the model that its result does not notice.
    """

    inputs: tuple[str, ...]
    output: Callable[[Model], Shape]
    methods: Mapping[str, Algorithm]
    needs: str = ""
    auto: tuple[str, ...] = ()
    simplify: Callable[[Model], Model] = lambda model: model


def homogeneous(T: Transform) -> list[Any]:
    """Kim (3), row by row."""
    return [x for row, p in zip(T.R.rows, T.p, strict=True) for x in (*row, p)] + [0.0, 0.0, 0.0, 1.0]


def _poses(model: Model, q: Any) -> Any:
    poses = kinematics.link_poses(model, q)[1:]
    return stack([x for T in poses for x in homogeneous(T)], (len(poses), 4, 4))


def _pose(model: Model, q: Any, frame: str) -> Any:
    return stack(homogeneous(kinematics.pose(model, q, model.frame(frame))), (4, 4))


def _velocity(model: Model, q: Any, v: Any, frame: str) -> Any:
    return stack(kinematics.velocity(model, q, v, model.frame(frame)).components)


def _acceleration(model: Model, q: Any, v: Any, a: Any, frame: str) -> Any:
    return stack(kinematics.acceleration(model, q, v, a, model.frame(frame)).components)


def _jacobian(model: Model, q: Any, frame: str) -> Any:
    return kinematics.jacobian(model, q, model.frame(frame))


def _jacobian_derivative(model: Model, q: Any, v: Any, frame: str) -> Any:
    return kinematics.jacobian_derivative(model, q, v, model.frame(frame))


def _nv(m: Model) -> Shape:
    return (m.nv,)


def _square(m: Model) -> Shape:
    return (m.nv, m.nv)


def _six(m: Model) -> Shape:
    return (6,)


def _columns(m: Model) -> Shape:
    return (6, m.nv)


_INVERSE = {
    "newton_euler": newton_euler.inverse_dynamics,
    "newton_euler_classical": classical.inverse_dynamics,
    "newton_euler_absolute": newton_euler.inverse_dynamics_absolute,
}
_AUTO_INVERSE = ("newton_euler_classical", "newton_euler")
_AUTO_FORWARD = ("articulated_body_classical", "composite_body_factored")
_FORWARD = {
    "articulated_body": articulated_body.forward_dynamics,
    "articulated_body_classical": classical.forward_dynamics,
    "articulated_body_absolute": articulated_body.forward_dynamics_absolute,
    "composite_body_factored": factorization.forward_dynamics,
}

FUNCTIONS: dict[str, Function] = {
    "inverse_dynamics": Function(("q", "v", "a"), _nv, _INVERSE, "", _AUTO_INVERSE, simplified),
    "inverse_dynamics_with_forces": Function(("q", "v", "a", "f_ext"), _nv, _INVERSE, "", _AUTO_INVERSE, regrouped),
    "forward_dynamics": Function(("q", "v", "tau"), _nv, _FORWARD, "", _AUTO_FORWARD, simplified),
    "forward_dynamics_with_forces": Function(("q", "v", "tau", "f_ext"), _nv, _FORWARD, "", _AUTO_FORWARD, regrouped),
    "mass_matrix": Function(
        ("q",),
        _square,
        {
            "composite_body": composite_body.mass_matrix,
            "composite_body_absolute": composite_body.mass_matrix_absolute,
            "newton_euler_columns": composite_body.mass_matrix_by_columns,
        },
        simplify=simplified,
    ),
    "mass_matrix_inverse": Function(
        ("q",),
        _square,
        {
            "articulated_body": articulated_body.mass_matrix_inverse,
            "composite_body_factored": factorization.mass_matrix_inverse,
        },
        auto=("composite_body_factored",),
        simplify=simplified,
    ),
    "bias_force": Function(
        ("q", "v"),
        _nv,
        {"newton_euler": newton_euler.bias_force, "newton_euler_classical": classical.bias_force},
        auto=("newton_euler_classical", "newton_euler"),
        simplify=simplified,
    ),
    "gravity_force": Function(("q",), _nv, {"newton_euler": newton_euler.gravity_force}, simplify=simplified),
    "passive_force": Function(("q", "v"), _nv, {"joints": passive_forces}),
    "coriolis_matrix": Function(("q", "v"), _square, {"composite_body": coriolis.coriolis_matrix}),
    "forward_kinematics": Function(("q",), lambda m: (m.n_links, 4, 4), {"kinematics": _poses}),
    "pose": Function(("q",), lambda m: (4, 4), {"kinematics": _pose}, "frame"),
    "velocity": Function(("q", "v"), _six, {"kinematics": _velocity}, "frame"),
    "acceleration": Function(("q", "v", "a"), _six, {"kinematics": _acceleration}, "frame"),
    "jacobian": Function(("q",), _columns, {"kinematics": _jacobian}, "frame"),
    "jacobian_derivative": Function(("q", "v"), _columns, {"kinematics": _jacobian_derivative}, "frame"),
    "kinetic_energy": Function(("q", "v"), lambda m: (), {"energy": energy.kinetic_energy}, simplify=simplified),
    "potential_energy": Function(("q",), lambda m: (), {"energy": energy.potential_energy}),
    "center_of_mass": Function(("q",), lambda m: (3,), {"energy": lambda m, q: stack(energy.center_of_mass(m, q))}),
    "momentum": Function(("q", "v"), _six, {"energy": lambda m, q, v: stack(energy.momentum(m, q, v).components)}),
    "centroidal_momentum_matrix": Function(("q",), _columns, {"composite_body": energy.centroidal_momentum_matrix}),
}

_SIZES: dict[str, Callable[[Model], Shape]] = {
    "q": lambda m: (m.nq,),
    "v": _nv,
    "a": _nv,
    "tau": _nv,
    "f_ext": lambda m: (m.n_links, 6),
}


def lookup(name: str, method: str) -> tuple[Function, str, Algorithm]:
    """A function by name and the formulation that is to compute it."""
    if name not in FUNCTIONS:
        raise unknown("function", name, FUNCTIONS, "a robot")
    function = FUNCTIONS[name]
    if method == "auto":
        method = next(iter(function.methods))
    if method not in function.methods:
        raise unknown("method", method, function.methods, f"function {name!r}")
    return function, method, function.methods[method]


def traced(
    model: Model, name: str, method: str, *, regroup: bool = True, free: Sequence[str] = (), **needs: Any
) -> Program:
    """The program of a function of a model; after the function's own inputs come the parameters that are free.

    The model is rewritten first unless `regroup` is False or the links it has are not known yet.
    """
    from qddot.compiler.expr import trace
    from qddot.compiler.program import straight_line

    function, _, algorithm = lookup(name, method)
    chosen, own = parameters.parameters(model, free), len(function.inputs)
    if regroup and not any(p.of_links for p in chosen):
        model = function.simplify(model)
    shapes = _input_shapes(model, function, free)
    sizes = [prod(s) for s in shapes]

    def run(*vectors: Any) -> Any:
        arrays = [x.reshape(s) for x, s in zip(vectors, shapes, strict=True)]
        if function.inputs[0] == "q":
            _guard_quaternions(model, arrays[0])
        filled = parameters.put(model, chosen, arrays[own:])
        return algorithm(_with_traced_inertias(filled, vectors[0][0].graph), *arrays[:own], **needs)

    graph, outputs, _ = trace(run, sizes)
    return straight_line(graph, outputs, sum(sizes))


def choice(model: Model, name: str, method: str = "auto", **needs: Any) -> tuple[Program, str]:
    """The program of a function and its formulation: for `auto`, the one with the fewest operations."""
    candidates = (lookup(name, method)[0].auto if method == "auto" else ()) or (lookup(name, method)[1],)
    return min(((traced(model, name, m, **needs), m) for m in candidates), key=lambda c: len(c[0].nodes()))


def _input_shapes(model: Model, function: Function, free: Sequence[str]) -> list[Shape]:
    own = [_SIZES[x](model) for x in function.inputs]
    return own + [p.shape for p in parameters.parameters(model, free)]


def _with_traced_inertias(model: Model, graph: Graph) -> Model:
    """The model with its inertias as numbers of the graph, whose arithmetic knows rounding from nothing."""
    from qddot.compiler.expr import Expr

    def traced(x: Any) -> Any:
        return tuple(map(traced, x)) if isinstance(x, tuple) else Expr(graph, graph.node_of(x))

    return replace(model, inertia=tuple(Inertia(*traced(tuple(I))) for I in model.inertia))


def _guard_quaternions(model: Model, q: Any) -> None:
    """A quaternion that is not of unit length gives NaN, not a wrong number."""
    for i, _ in model.outward():
        if isinstance(model.joint[i], Free | Spherical):
            last = model.slots[i].q.stop - 1
            x, y, z, w = q[last - 3 : last + 1]
            off = x * x + y * y + z * z + w * w - 1.0
            q[last] = where(less(off * off, UNIT_QUATERNION_TOLERANCE**2), w, math.nan)


def build(
    model: Model,
    name: str,
    method: str = "auto",
    dtype: str = "float64",
    lanes: int | None = None,
    *,
    regroup: bool = True,
    free: Sequence[str] = (),
    **needs: Any,
) -> Kernel:
    """The kernel of a function of a model, from the cache if it is there."""
    function = lookup(name, method)[0]
    begin = time.perf_counter()
    needs = {**needs, "regroup": regroup, **({"free": tuple(free)} if free else {})}
    key = _key(model, name, method, dtype, lanes, needs)
    inputs, output = _input_shapes(model, function, free), function.output(model)
    stored = _unpack(default_cache().get(key))
    cached = stored is not None
    if stored is None:
        stored = _compile(model, name, method, dtype, lanes, needs, inputs, output)
        default_cache().put(key, _pack(*stored))
    facts, data = stored
    info = Info(
        function=name,
        form="unrolled",
        dtype=dtype,
        code_bytes=len(data),
        compile_seconds=time.perf_counter() - begin,
        cached=cached,
        free=tuple(free),
        **facts,
    )
    names = (*function.inputs, *free)
    return Kernel(Code(data), names, inputs, output, info, lambda: explain(model, name, facts["method"], **needs))


def explain(model: Model, name: str, method: str = "auto", **needs: Any) -> str:
    """Where a kernel's operations come from: how many compute which symbol of which link, in the order of the code."""
    from qddot.compiler.ops import OPS

    program = traced(model, name, method, **needs)
    graph = program.graph
    marks = iter([*graph.marks, (len(graph), "rest", 0)])
    end, symbol, link = next(marks)
    rows: dict[tuple[str, str], Counter[str]] = {}
    for node in program.nodes():
        while node >= end:
            end, symbol, link = next(marks)
        row = rows.setdefault((model.link_names[link], symbol), Counter())
        row.update(OPS[graph.ops[node]].counts)
    total = program.count()
    columns = [c for c in total if total[c]]
    width = max([4, *(len(f"{link}  {symbol}") for link, symbol in rows)])
    lines = [f"{'link and symbol':<{width}} " + "".join(f"{c:>9}" for c in columns)]
    for (name_of_link, what), row in rows.items():
        if row:
            lines.append(f"{name_of_link + '  ' + what:<{width}} " + "".join(f"{row[c] or '':>9}" for c in columns))
    return "\n".join([*lines, f"{'total':<{width}} " + "".join(f"{total[c]:>9}" for c in columns)])


def _compile(
    model: Model,
    name: str,
    method: str,
    dtype: str,
    lanes: int | None,
    needs: Mapping[str, Any],
    inputs: list[Shape],
    output: Shape,
) -> tuple[dict[str, Any], bytes]:
    from qddot.compiler import llvm
    from qddot.compiler.fuse import fused

    plain, method = choice(model, name, method, **needs)
    program = fused(plain)
    count = len(program.nodes())
    if count > MOST_INSTRUCTIONS:
        raise KernelTooLargeError(
            f"{name} of {model.name!r} has {count:,} operations; straight-line code stops at {MOST_INSTRUCTIONS:,}; "
            f"Robot(model, compiled=False) runs the algorithm as it is"
        )
    width = machine.lanes(dtype) if lanes is None else lanes
    with _Notice(f"qddot: compiling {name} of {model.name!r} ({count:,} operations) …", count):
        data = machine.compile_object(llvm.render(program, inputs, [output], width, dtype, machine.is_x86()))
    return {"method": method, "lanes": width, "ops": plain.count(), "instructions": count}, data


class _Notice:
    """A line on the terminal while something takes longer than a second, gone afterwards."""

    def __init__(self, text: str, operations: int) -> None:
        self.text = text if operations > 15_000 and sys.stderr.isatty() else ""

    def __enter__(self) -> None:
        if self.text:
            print(self.text, end="\r", file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        if self.text:
            print(" " * len(self.text), end="\r", file=sys.stderr, flush=True)


# ---- the cache's keys and values ---------------------------------------------------------------------------------------


def _key(model: Model, name: str, method: str, dtype: str, lanes: int | None, needs: Mapping[str, Any]) -> str:
    parts = (model.digest, name, method, dtype, lanes, sorted(needs.items()), machine.cpu(), _source())
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@cache
def _source() -> str:
    """The state of qddot's own code: a kernel of another version is another kernel."""
    root = Path(__file__).parent
    stats = [(str(p.relative_to(root)), p.stat().st_size, p.stat().st_mtime_ns) for p in sorted(root.rglob("*.py"))]
    import llvmlite

    return hashlib.sha256(repr((stats, llvmlite.__version__, sys.version)).encode()).hexdigest()


def _pack(facts: dict[str, Any], data: bytes) -> bytes:
    return json.dumps(facts).encode() + b"\n" + data


def _unpack(value: bytes | None) -> tuple[dict[str, Any], bytes] | None:
    if value is None:
        return None
    head, _, data = value.partition(b"\n")
    return json.loads(head), data
