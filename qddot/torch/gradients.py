"""How calls are differentiated: each derivative of a call is a call, up to the second.

A VJP's result is one row: the gradients with respect to `wrt`, one after another. With g(x, c) the row of f's VJP and s a
cotangent of the row, the second VJP gives the gradients of s·g(x, c) with respect to `wrt` and to c. Of a JVP h(x, t),
c·h(x, t) = t·g(x, c), so that its gradients are a second VJP with s = t, and f's VJP for t.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from qddot.errors import InputError
from qddot.torch.call import Call, Signature
from qddot.torch.kernels import program

Apply = Callable[[str, Sequence[Tensor]], Tensor]


def pulled(
    apply: Apply, key: str, inputs: Sequence[Tensor], cotangent: Tensor, needed: Sequence[bool]
) -> list[Tensor | None]:
    """The gradients with respect to the inputs that need them; reduced over batch axes that an input has not."""
    own = program(key)
    call = own.call
    asked = {name for (name, _), is_needed in zip(own.inputs, needed, strict=True) if is_needed}
    if not asked:
        return [None] * len(inputs)
    if call.vjp + call.jvp == 0:
        found = _first(apply, own, inputs, cotangent, asked)
    elif (call.vjp, call.jvp) == (1, 0):
        found = _second(apply, own, inputs[:-1], inputs[-1], _row(own, cotangent), asked)
    elif (call.vjp, call.jvp) == (0, 1):
        found = _of_jvp(apply, own, inputs, cotangent, asked)
    else:
        raise third(call)
    return [
        _reduced(found[name], x, shape) if name in asked else None
        for (name, shape), x in zip(own.inputs, inputs, strict=True)
    ]


def pushed(apply: Apply, key: str, inputs: Sequence[Tensor], tangents: Sequence[Tensor | None]) -> Tensor:
    """The JVP of a call along tangents of some of its inputs."""
    own = program(key)
    call = own.call
    given = {name: t for (name, _), t in zip(own.inputs, tangents, strict=True) if t is not None}
    if call.vjp + call.jvp == 0:
        wrt = tuple(name for name in own.names if name in given)
        return apply(call._replace(jvp=1, wrt=wrt).key, [*inputs, *(given[name] for name in wrt)])
    raise third(call)


def third(call: Call) -> InputError:
    """For what is differentiated once too often."""
    return InputError(
        f"{call.function}: the operation has first and second derivatives, and no third ones (a call with vjp={call.vjp}, "
        f"jvp={call.jvp} was to be differentiated)"
    )


def _first(apply: Apply, own: Signature, inputs: Sequence[Tensor], cotangent: Tensor, asked: set[str]) -> dict[str, Tensor]:
    """By the VJP of a function."""
    wrt = tuple(name for name in own.names if name in asked)
    row = apply(own.call._replace(vjp=1, wrt=wrt).key, [*inputs, cotangent])
    return _parts(row, own, wrt)


def _second(
    apply: Apply, own: Signature, inputs: Sequence[Tensor], cotangent: Tensor, row: dict[str, Tensor], asked: set[str]
) -> dict[str, Tensor]:
    """By the VJP of the VJP, for the cotangents `row` of its parts."""
    base = own.call._replace(vjp=0, jvp=0, wrt=())
    if asked == {"cotangent"}:  # what is linear in the cotangent has the JVP for its gradient
        wrt = tuple(name for name in own.names if name in row)
        return {"cotangent": apply(base._replace(jvp=1, wrt=wrt).key, [*inputs, *(row[name] for name in wrt)])}
    wrt = tuple(name for name in own.names if name in row or name in asked)
    parts = []
    batch = torch.broadcast_shapes(*(x.shape[: x.ndim - len(own.of_name[name])] for name, x in row.items()))
    for name in wrt:
        shape = own.of_name[name]
        x = row.get(name)
        x = cotangent.new_zeros((*batch, *shape)) if x is None else x.expand(*batch, *shape)
        parts.append(x.reshape(*batch, prod(shape)))
    second = apply(base._replace(vjp=2, wrt=wrt).key, [*inputs, cotangent, torch.cat(parts, -1)])
    return _parts(second, own, wrt, own.value)


def _of_jvp(
    apply: Apply, own: Signature, inputs: Sequence[Tensor], cotangent: Tensor, asked: set[str]
) -> dict[str, Tensor]:
    """By the identities above."""
    count, wrt = len(own.names), own.call.wrt
    points, tangents = inputs[:count], dict(zip(wrt, inputs[count:], strict=True))
    found: dict[str, Tensor] = {}
    if points_asked := asked & {*own.names}:
        found |= _second(apply, own, points, cotangent, tangents, points_asked)
    if of_tangents := tuple(name for name in wrt if f"{name}_tangent" in asked):
        row = apply(own.call._replace(vjp=1, jvp=0, wrt=of_tangents).key, [*points, cotangent])
        found |= {f"{name}_tangent": x for name, x in _parts(row, own, of_tangents).items()}
    return found


def _row(own: Signature, row: Tensor) -> dict[str, Tensor]:
    """The parts of a row of gradients by name."""
    return _parts(row, own, own.call.wrt)


def _parts(row: Tensor, own: Signature, wrt: Sequence[str], value: Any = None) -> dict[str, Tensor]:
    """The gradients in a row by the names of their inputs; that of the cotangent, of shape `value`, last."""
    shapes = {name: own.of_name[name] for name in wrt} | ({} if value is None else {"cotangent": value})
    parts = row.split([prod(shape) for shape in shapes.values()], -1)
    batch = row.shape[:-1]
    return {name: x.reshape(*batch, *shape) for (name, shape), x in zip(shapes.items(), parts, strict=True)}


def _reduced(gradient: Tensor, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Summed over the batch axes along which an input was broadcast."""
    return gradient if gradient.shape == x.shape else gradient.sum_to_size(x.shape)
