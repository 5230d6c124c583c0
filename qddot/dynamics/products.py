"""Kernels of derivatives: products of a function's Jacobian with a cotangent (VJP) or with tangents (JVP).

They are made by differentiating the trace of the function (`compiler.ir.differentiate`), once or twice. Between what a
configuration's coordinates change by and the tangent space, in which velocities are, stands the joints' own map `along`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qddot.compiler.runtime.kernel import Shape
from qddot.dynamics.catalogue import input_shapes
from qddot.dynamics.function import Function
from qddot.errors import InputError, one_name, shown, unknown
from qddot.mechanism.model import Model
from qddot.scalars import Scalar, total

if TYPE_CHECKING:  # the compiler is loaded when something is to be compiled
    from qddot.compiler.ir.expr import Graph

VJP, JVP = "vjp", "jvp"
COORDINATES = ("tangent", "ambient")
_ORDERS = (False, True, 2)
RESULT = "result"  # the input of a product whose function's result is known
HAVE_KNOWN_RESULT = ("forward_dynamics", "forward_dynamics_with_forces")  # for which that is cheaper (`known_results`)
_PREFIX = ("", "second_")  # of the first and the second cotangent or tangents
Named = dict[str, Shape]


class Product(NamedTuple):
    """What a kernel computes in place of a function: a product with its Jacobian, or with that of such a product.

    `sweeps` says which, the first of the function: ("vjp",), ("jvp",), ("vjp", "vjp"), ("jvp", "jvp"), ("vjp", "jvp").
    `wrt` are the inputs, in their order, that are differentiated by. With `known_result` the function's own result is an
    input as well, and need not be computed.
    """

    sweeps: tuple[str, ...]
    wrt: tuple[str, ...]
    coordinates: str
    known_result: bool = False

    @property
    def label(self) -> str:
        """In words."""
        return " of the ".join(sweep.upper() for sweep in reversed(self.sweeps))

    def tangent_shape(self, model: Model, name: str, shape: Shape) -> Shape:
        """Of the tangents and gradients of an input."""
        return (model.nv,) if name == "q" and self.coordinates == "tangent" else shape


class Signature(NamedTuple):
    """A kernel's inputs by name, the shape of its result, and the parts of a result that is a row of gradients."""

    inputs: Named
    output: Shape
    parts: Named


def signature(
    model: Model, function: Function, free: Sequence[str], needs: Mapping[str, Any], product: Product | None
) -> Signature:
    """The inputs and the result of a kernel of a function or of a product with its Jacobian."""
    known = dict(zip((*function.inputs, *free), input_shapes(model, function, free), strict=True))
    found = Signature(known, function.shape(model, needs), {})
    if product is None:
        return found
    by = {name: product.tangent_shape(model, name, known[name]) for name in product.wrt}
    if product.known_result:
        found = found._replace(inputs={**known, RESULT: found.output})
    for k, sweep in enumerate(product.sweeps):
        found = _after(found, sweep, by, _PREFIX[product.sweeps[:k].count(sweep)])
    return found


def _after(of: Signature, sweep: str, by: Named, prefix: str) -> Signature:
    """The signature of a product with the Jacobian of a function of this one."""
    if sweep == JVP:
        return of._replace(inputs={**of.inputs, **{f"{x}_{prefix}tangent": s for x, s in by.items()}})
    parts = by | {x: s for x, s in of.inputs.items() if x == "cotangent"}
    return Signature({**of.inputs, f"{prefix}cotangent": of.output}, (sum(map(prod, parts.values())),), parts)


# ---- options, checked -------------------------------------------------------------------------------------------------


def checked(name: str, function: Function, free: Sequence[str], given: Mapping[str, Any]) -> Product | None:
    """The product that the options of kernels ask for; None without `vjp` and `jvp`."""
    orders = {sweep: _order(sweep, given.get(sweep, False)) for sweep in (VJP, JVP)}
    sweeps = (VJP,) * orders[VJP] + (JVP,) * orders[JVP]
    if not sweeps:
        for name in ("wrt", "coordinates", "known_result"):
            if given.get(name, False) is not False:
                raise InputError(f"{name}= is for products with the Jacobian; add vjp=True or jvp=True")
        return None
    if len(sweeps) > len(_PREFIX):
        raise InputError("vjp and jvp together are taken once each, vjp=True and jvp=True: the JVP of the VJP")
    coordinates = one_name(given.get("coordinates", COORDINATES[0]), "coordinates=")
    if coordinates not in COORDINATES:
        raise InputError(f"coordinates={coordinates!r} is not known; take 'tangent' or 'ambient'")
    known = given.get("known_result", False)
    if not isinstance(known, bool | np.bool_):
        raise InputError(f"known_result={shown(known)} is not known; take True or False")
    if known and (len(sweeps) > 1 or name not in HAVE_KNOWN_RESULT):
        what = f"products of the second order of {name}" if len(sweeps) > 1 else f"products with the Jacobian of {name}"
        raise InputError(
            f"known_result=True is for vjp=True or jvp=True of {HAVE_KNOWN_RESULT[0]}; {what} compute the result"
        )
    return Product(sweeps, _wrt((*function.inputs, *free), given.get("wrt")), coordinates, bool(known))


def _order(sweep: str, given: Any) -> int:
    if not isinstance(given, bool | int | np.bool_) or given not in _ORDERS:
        raise InputError(f"{sweep}={shown(given)} is not known; take True, or 2 for the second order")
    return int(given)


def _wrt(known: Sequence[str], given: Any) -> tuple[str, ...]:
    """The inputs that are differentiated by, in the order of the function's inputs."""
    if given is None:
        return tuple(known)
    if not isinstance(given, Iterable):
        raise InputError(f"wrt={shown(given)} is not known; give names of inputs, some of {', '.join(known)}")
    names = [one_name(x, "an input in wrt=") for x in ((given,) if isinstance(given, str) else given)]
    for name in names:
        if name not in known:
            raise unknown("input", name, known, "this function with these free parameters")
    if not names or len(set(names)) < len(names):
        what = "names no input" if not names else "names an input twice"
        raise InputError(f"wrt={shown(given)} {what}; some of {', '.join(known)} are to be differentiated by")
    return tuple(x for x in known if x in names)


# ---- how it is computed ----------------------------------------------------------------------------------------------


def traced(
    graph: Graph, model: Model, product: Product, inputs: Mapping[str, NDArray[Any]], result: NDArray[Any]
) -> NDArray[Any]:
    """The product with the Jacobian of a result that was traced; `inputs` are all of the kernel's, by name."""
    by = {name: inputs[name] for name in product.wrt}
    for k, sweep in enumerate(product.sweeps):
        prefix = _PREFIX[product.sweeps[:k].count(sweep)]
        if sweep == VJP:
            result = _vjp(graph, model, product, by, result, inputs[f"{prefix}cotangent"])
            by = {**by, f"{prefix}cotangent": inputs[f"{prefix}cotangent"]}
        else:
            tangents = {name: inputs[f"{name}_{prefix}tangent"] for name in product.wrt}
            result = _jvp(graph, model, product, by, result, tangents)
    return result


def _vjp(graph: Graph, model: Model, product: Product, by: Any, result: Any, cotangent: Any) -> NDArray[Any]:
    """The row of gradients with respect to these inputs."""
    from qddot.compiler.ir.differentiate import vjp
    from qddot.compiler.ir.expr import Expr

    nodes = [graph.nodes_of(x) for x in by.values()]
    found = iter(vjp(graph, graph.nodes_of(result), [n for own in nodes for n in own], graph.nodes_of(cotangent)))
    row: list[Scalar] = []
    for (name, x), own in zip(by.items(), nodes, strict=True):
        gradient: list[Scalar] = [Expr(graph, next(found)) for _ in own]
        if name == "q":
            change = tangent_gradient if product.coordinates == "tangent" else on_sphere
            gradient = change(model, list(x), gradient)
        row += gradient
    return _array(row)


def _jvp(graph: Graph, model: Model, product: Product, by: Any, result: Any, tangents: Any) -> NDArray[Any]:
    """How the result changes along these tangents."""
    from qddot.compiler.ir.differentiate import jvp
    from qddot.compiler.ir.expr import Expr

    nodes: list[int] = []
    rates: list[int] = []
    for name, tangent in tangents.items():
        rate = list(tangent.reshape(-1))
        if name == "q":
            change = ambient_rate if product.coordinates == "tangent" else on_sphere
            rate = change(model, list(by["q"]), rate)
        nodes += graph.nodes_of(by[name])
        rates += [graph.node_of(x) for x in rate]
    shape = np.shape(result)
    return _array([Expr(graph, n) for n in jvp(graph, graph.nodes_of(result), nodes, rates)]).reshape(shape)


def _array(numbers: Sequence[Scalar]) -> NDArray[Any]:
    out = np.empty(len(numbers), dtype=object)
    out[:] = numbers
    return out


# ---- coordinates and the tangent space -------------------------------------------------------------------------------


def tangent_gradient(model: Model, q: Sequence[Scalar], gradient: Sequence[Scalar]) -> list[Scalar]:
    """The nv derivatives along the degrees of freedom, of the nq with respect to the coordinates."""
    out: list[Scalar] = [0.0] * model.nv
    for i, slot in _independent(model):
        x, g = q[slot.q], gradient[slot.q]
        for k in range(model.joint[i].nv):
            rates = model.joint[i].along(x, k)
            out[slot.v.start + k] = total(rate * g[j] for j, rate in enumerate(rates))
    return out


def ambient_rate(model: Model, q: Sequence[Scalar], v: Sequence[Scalar]) -> list[Scalar]:
    """How the nq coordinates change where the robot moves with v."""
    out: list[Scalar] = [0.0] * model.nq
    for i, slot in _independent(model):
        joint, u = model.joint[i], v[slot.v]
        columns = [joint.along(q[slot.q], k) for k in range(joint.nv)]
        out[slot.q] = [total(column[j] * u[k] for k, column in enumerate(columns)) for j in range(joint.nq)]
    return out


def squared_rates(model: Model) -> list[float]:
    """The squares of the coordinates' rates of change along each degree of freedom. The rates along two of them are at
    right angles, and their squares are the same everywhere: 1, and 1/4 for the turns of a quaternion.
    """
    out = [0.0] * model.nv
    for i, slot in _independent(model):
        joint = model.joint[i]
        for k in range(joint.nv):
            out[slot.v.start + k] = sum(float(rate) ** 2 for rate in joint.along(joint.neutral(), k))
    return out


def on_sphere(model: Model, q: Sequence[Scalar], change: Sequence[Scalar]) -> list[Scalar]:
    """What remains of a change or a gradient of coordinates without the parts along quaternions."""
    out = list(change)
    for i, slot in _independent(model):
        if model.joint[i].has_unit_quaternion:
            last = slice(slot.q.stop - 4, slot.q.stop)
            along = total(x * d for x, d in zip(q[last], change[last], strict=True))
            out[last] = [d - x * along for x, d in zip(q[last], change[last], strict=True)]
    return out


def _independent(model: Model) -> Iterable[tuple[int, Any]]:
    """The joints that have coordinates of their own, and where these are."""
    return ((i, model.slots[i]) for i, _ in model.outward() if model.mimic[i] is None)
