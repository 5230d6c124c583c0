"""How calls are differentiated: each derivative of a call is a call, up to the second.

With x the inputs, c a cotangent, t tangents, J(x) the Jacobian of a function f:

| call          | result          | along changes of x                    | along c or t      |
|---------------|-----------------|---------------------------------------|-------------------|
| f             | f(x)            | JVP; VJP                              |                   |
| VJP           | g(x, c) = Jᵀc   | JVP of the VJP; VJP of the VJP        | linear: VJP; JVP  |
| JVP           | h(x, t) = J t   | JVP of the JVP; VJP of the VJP, below | linear: JVP; VJP  |

since c·h(x, t) = t·g(x, c), so that the gradients of both with respect to x are the same. A VJP's result is one row, the
gradients with respect to `wrt` one after another.

The result of forward dynamics makes its VJP and JVP cheaper. It follows from x: they take it as an input that nothing is
differentiated by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from qddot.dynamics.products import RESULT
from qddot.errors import InputError
from qddot.torch.call import Call, call_of
from qddot.torch.kernels import Program, program

Apply = Callable[[str, Sequence[Tensor]], Tensor]
Named = dict[str, Tensor]


class Derivatives:
    """Derivatives of a function at some inputs; `result` is empty where it is not known or does not help."""

    def __init__(self, apply: Apply, own: Program, inputs: Sequence[Tensor], result: Sequence[Tensor]) -> None:
        self.apply, self.names = apply, own.names
        self.call = own.call._replace(vjp=0, jvp=0, wrt=(), known_result=False)
        self.shapes = {name: own.inputs[name] for name in own.names}
        self.inputs = tuple(inputs[: len(own.names)])
        self.result = [x.detach() for x in result]

    def ordered(self, *names: Iterable[str]) -> tuple[str, ...]:
        """Names of inputs, each once, in the order of the inputs."""
        known = {x for some in names for x in some}
        return tuple(name for name in self.names if name in known)

    def jvp(self, tangents: Named) -> Tensor:
        """J t."""
        wrt = self.ordered(tangents)
        call = self.call._replace(jvp=1, wrt=wrt, known_result=bool(self.result))
        return self.apply(call.key, [*self.inputs, *self.result, *(tangents[name] for name in wrt)])

    def vjp(self, cotangent: Tensor, wrt: Iterable[str]) -> Named:
        """Jᵀc by the names of inputs."""
        call = self.call._replace(vjp=1, wrt=self.ordered(wrt), known_result=bool(self.result))
        return _parts(program(call.key), self.apply(call.key, [*self.inputs, *self.result, cotangent]))

    def jvp_of_jvp(self, tangents: Named, others: Named) -> Tensor:
        """How J t changes along other tangents."""
        wrt = self.ordered(tangents, others)
        both = [self._padded(x, wrt, self._like(tangents)) for x in (tangents, others)]
        call = self.call._replace(jvp=2, wrt=wrt)
        return self.apply(call.key, [*self.inputs, *(x[name] for x in both for name in wrt)])

    def jvp_of_vjp(self, cotangent: Tensor, tangents: Named, parts: Iterable[str]) -> Named:
        """How Jᵀc changes along tangents."""
        wrt = self.ordered(tangents, parts)
        padded = self._padded(tangents, wrt, cotangent)
        found = self._vjp(wrt, [cotangent, *(padded[name] for name in wrt)], vjp=1, jvp=1)
        return {name: found[name] for name in parts}

    def vjp_of_vjp(self, cotangent: Tensor, row: Named, wrt: Iterable[str]) -> Named:
        """The gradients of row·Jᵀc with respect to some inputs, and to the cotangent."""
        all_of = self.ordered(row, wrt)
        padded = self._padded(row, all_of, cotangent)
        batch = torch.broadcast_shapes(*(self._batch(name, x) for name, x in padded.items()))
        wide = {name: x.expand((*batch, *self.shapes[name])) for name, x in padded.items()}
        flat = [x.reshape((*batch, prod(self.shapes[name]))) for name, x in wide.items()]
        return self._vjp(all_of, [cotangent, torch.cat(flat, -1)], vjp=2)

    def _vjp(self, wrt: tuple[str, ...], others: Sequence[Tensor], vjp: int, jvp: int = 0) -> Named:
        """The parts of a row of gradients by name."""
        key = self.call._replace(wrt=wrt, vjp=vjp, jvp=jvp).key
        return _parts(program(key), self.apply(key, [*self.inputs, *others]))

    def _padded(self, given: Named, names: Sequence[str], like: Tensor) -> Named:
        """With zeros for names that are not given."""
        return {name: given[name] if name in given else like.new_zeros(self.shapes[name]) for name in names}

    def _like(self, tangents: Named) -> Tensor:
        return next(iter(tangents.values()))

    def _batch(self, name: str, x: Tensor) -> torch.Size:
        return x.shape[: x.ndim - len(self.shapes[name])]


def kept(key: str, inputs: Sequence[Tensor], result: Tensor) -> tuple[Tensor, ...]:
    """What derivatives of a call need, for `pulled` and `pushed`: its inputs, and its result where that helps."""
    return (*inputs, result) if call_of(key).helps_derivatives else tuple(inputs)


def pulled(
    apply: Apply, key: str, kept: Sequence[Tensor], cotangent: Tensor, needed: Sequence[bool]
) -> list[Tensor | None]:
    """The gradients with respect to the inputs that need them, summed over batch axes that an input has not."""
    if (first := _first_order(key, tuple(needed))) is not None:
        return first.gradients(apply, kept, cotangent)
    own = program(key)
    asked = [name for name, is_needed in zip(own.inputs, needed, strict=True) if is_needed and name != RESULT]
    if not asked:
        return [None] * len(needed)
    inputs, result = kept[: len(needed)], kept[len(needed) :]
    given, of = dict(zip(own.inputs, inputs, strict=True)), Derivatives(apply, own, inputs, result)
    found: Named = {}
    points, others = [x for x in asked if x in own.names], [x for x in asked if x not in own.names]
    match own.call.vjp, own.call.jvp:
        case 1, 0:
            row = _parts(own, cotangent)
            if points:
                found = of.vjp_of_vjp(given["cotangent"], row, points)
            elif others:
                found = {"cotangent": of.jvp(row)}
        case 0, 1:
            tangents = {name: given[f"{name}_tangent"] for name in own.call.wrt}
            if points:
                found = of.vjp_of_vjp(cotangent, tangents, points)
            if others:
                wrt = [name.removesuffix("_tangent") for name in others]
                found |= {f"{name}_tangent": x for name, x in of.vjp(cotangent, wrt).items()}
        case _:
            raise _third(own.call)
    return [_summed(found[name], x.shape) if name in asked else None for name, x in given.items()]


class _FirstOrder(NamedTuple):
    """The call whose result has the gradients of a function side by side, and which inputs they belong to."""

    key: str
    inputs: int  # how many there are
    axes: int  # of one state's result
    places: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    sizes: list[int]

    def gradients(self, apply: Apply, kept: Sequence[Tensor], cotangent: Tensor) -> list[Tensor | None]:
        """Of all inputs; None for those that need none."""
        result = [x.detach() for x in kept[self.inputs :]]
        row = apply(self.key, [*kept[: self.inputs], *result, _one_for_all(cotangent, self.axes)])
        out: list[Tensor | None] = [None] * self.inputs
        for k, shape, x in zip(self.places, self.shapes, row.split_with_sizes(self.sizes, -1), strict=True):
            gradient = x if len(shape) == 1 else x.reshape((*row.shape[:-1], *shape))
            out[k] = _summed(gradient, kept[k].shape)
        return out


@lru_cache(maxsize=4096)
def _first_order(key: str, needed: tuple[bool, ...]) -> _FirstOrder | None:
    """None for calls that are derivatives themselves, and where no input needs a gradient."""
    own = program(key)
    asked = [k for k, is_needed in enumerate(needed) if is_needed]
    if own.call.vjp or own.call.jvp or not asked:
        return None
    shapes = tuple(own.inputs[own.names[k]] for k in asked)
    known = own.call.helps_derivatives
    call = own.call._replace(vjp=1, wrt=tuple(own.names[k] for k in asked), known_result=known)
    return _FirstOrder(call.key, len(needed), len(own.output), tuple(asked), shapes, [prod(x) for x in shapes])


def pushed(apply: Apply, key: str, kept: Sequence[Tensor], tangents: Sequence[Tensor | None]) -> Tensor:
    """How the result of a call changes along tangents of some of its inputs."""
    own = program(key)
    inputs, result = kept[: len(tangents)], kept[len(tangents) :]
    given, of = dict(zip(own.inputs, inputs, strict=True)), Derivatives(apply, own, inputs, result)
    along = {name: t for name, t in zip(own.inputs, tangents, strict=True) if t is not None}
    points = {name: t for name, t in along.items() if name in own.names}
    terms: list[Tensor] = []
    match own.call.vjp, own.call.jvp:
        case 0, 0:
            terms = [of.jvp(points)]
        case 1, 0:
            if points:
                terms = [_row(own, of.jvp_of_vjp(given["cotangent"], points, own.call.wrt))]
            if "cotangent" in along:
                terms.append(_row(own, of.vjp(along["cotangent"], own.call.wrt)))
        case 0, 1:
            own_tangents = {name: given[f"{name}_tangent"] for name in own.call.wrt}
            if points:
                terms = [of.jvp_of_jvp(own_tangents, points)]
            if changes := {name: along[f"{name}_tangent"] for name in own.call.wrt if f"{name}_tangent" in along}:
                terms.append(of.jvp(changes))
        case _:
            raise _third(own.call)
    result = sum(terms[1:], terms[0])
    shape = own.batch([x.shape for x in inputs])
    return result.expand((*shape, *own.output))


def _summed(gradient: Tensor, shape: torch.Size) -> Tensor:
    return gradient if gradient.shape == shape else gradient.sum_to_size(shape)


def _one_for_all(cotangent: Tensor, axes: int) -> Tensor:
    """A cotangent that is the same for all states, as that of a sum is, with the numbers of its one state side by side."""
    batch = cotangent.ndim - axes
    if not batch or any(cotangent.stride()[:batch]) or not cotangent.numel():
        return cotangent
    return cotangent[(0,) * batch].contiguous().expand(cotangent.shape)


def _third(call: Call) -> InputError:
    """For what is differentiated once too often."""
    return InputError(
        f"{call.function}: the operation has first and second derivatives, and no third ones (a call with vjp={call.vjp}, "
        f"jvp={call.jvp} was to be differentiated)"
    )


def _parts(own: Program, row: Tensor) -> Named:
    """A cotangent of a row of gradients, by the names of the inputs that the row has gradients of."""
    shapes = own.parts
    parts = row.split([prod(shape) for shape in shapes.values()], -1)
    found = zip(shapes.items(), parts, strict=True)
    return {name: x if len(s) == 1 else x.reshape((*row.shape[:-1], *s)) for (name, s), x in found}


def _row(own: Program, parts: Mapping[str, Tensor]) -> Tensor:
    """The row of such parts."""
    flat = []
    for name, shape in own.parts.items():
        x = parts[name]
        flat.append(x.reshape((*x.shape[: x.ndim - len(shape)], prod(shape))))
    return torch.cat(flat, -1)
