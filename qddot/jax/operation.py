"""What a call computes: a function of a robot or a derivative of one, with the shapes of what it takes and gives.

An operation is the only parameter of the primitive, so it is hashed by what it is: the model's digest and the request. Its
derivatives are operations too. Those of second order are two, and everything that JAX asks for is one of them:

| kind      | takes                           | gives                             |
|-----------|---------------------------------|-----------------------------------|
| `value`   | x                               | f(x)                              |
| `jvp`     | x, t                            | J(x) t                            |
| `vjp`     | x, c                            | Jᵀ(x) c, in one row               |
| `jvp_jvp` | x, s, t                         | the slope of J(x) s along t       |
| `vjp_jvp` | x, c, t                         | the slope of Jᵀ(x) c along t      |

x are all inputs; s and t are tangents of the inputs `wrt`, in the coordinates of those inputs. The first derivatives of
forward dynamics take f(x) after x, which makes them cheaper; nothing is differentiated by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from math import prod
from typing import Any, NamedTuple

from qddot.compiler.runtime.arguments import Signature
from qddot.compiler.runtime.kernel import Kernel, Shape
from qddot.dynamics.catalogue import input_shapes, lookup
from qddot.dynamics.engine import Engine
from qddot.dynamics.products import HAVE_KNOWN_RESULT, JVP, RESULT, VJP, Product
from qddot.dynamics.request import Request
from qddot.errors import InputError
from qddot.version import __version__

_SWEEPS = {  # of `dynamics.products`
    "jvp": (JVP,),
    "vjp": (VJP,),
    "jvp_jvp": (JVP, JVP),
    "vjp_jvp": (VJP, JVP),
}
TANGENTS = {"value": 0, "jvp": 1, "vjp": 0, "jvp_jvp": 2, "vjp_jvp": 1}
HAS_COTANGENT = {"vjp", "vjp_jvp"}


class Parts(NamedTuple):
    """An operation's arguments: the inputs, the result and the cotangent where it takes them, and each row of tangents."""

    inputs: list[Any]
    result: list[Any]
    cotangent: list[Any]
    rows: list[list[Any]]


@dataclass(frozen=True)
class Operation:
    """A function of the robot of an engine, or one of its derivatives with respect to the inputs `wrt`."""

    engine: Engine = field(compare=False, repr=False)
    digest: str
    request: Request
    kind: str = "value"
    wrt: tuple[str, ...] = ()

    @cached_property
    def function(self) -> Signature:
        """The names and shapes of the function's own inputs, free parameters last, and of its result."""
        found = lookup(self.request.function, self.request.method)[0]
        model, names = self.engine.model, (*found.inputs, *self.request.free)
        shapes = input_shapes(model, found, self.request.free)
        return Signature(self.request.function, names, tuple(shapes), found.shape(model, dict(self.request.static)))

    @cached_property
    def signature(self) -> Signature:
        """The names and shapes of what the operation takes, and of what it gives."""
        own, names, shapes = self.function, list(self.function.names), list(self.function.inputs)
        if self.takes_result:
            names.append(RESULT)
            shapes.append(own.output)
        if self.kind in HAS_COTANGENT:
            names.append("cotangent")
            shapes.append(own.output)
        for k in range(TANGENTS[self.kind]):
            names += [f"{name}_tangent{k or ''}" for name in self.wrt]
            shapes += self.wrt_shapes
        return Signature(own.function, tuple(names), tuple(shapes), self.output)

    @property
    def takes_result(self) -> bool:
        """Whether it is cheaper with the function's result, which it takes after the inputs."""
        return self.kind in (JVP, VJP) and self.request.function in HAVE_KNOWN_RESULT

    @cached_property
    def output(self) -> Shape:
        """Of one state: the function's, or a row with the gradients of all of `wrt`."""
        return (sum(map(prod, self.wrt_shapes)),) if self.kind in HAS_COTANGENT else self.function.output

    @cached_property
    def wrt_shapes(self) -> tuple[Shape, ...]:
        """Of one state of each of `wrt`."""
        own = dict(zip(self.function.names, self.function.inputs, strict=True))
        return tuple(own[name] for name in self.wrt)

    def check(self, shapes: Sequence[tuple[Any, ...]]) -> None:
        """Errors for shapes that the arguments cannot have, by their names."""
        own = self.signature
        for k, shape in enumerate(shapes):
            own.check_shape(k, shape)
            if not all(isinstance(n, int) for n in shape):
                raise InputError(
                    f"{own.function}: {own.names[k]} has the symbolic shape {shape}, and kernels are called with lengths "
                    f"that are known; export a program for each batch"
                )
        own.batch(shapes)

    def derived(self, kind: str, wrt: tuple[str, ...]) -> Operation:
        """A derivative of the same function, its inputs in the function's order."""
        ordered = tuple(name for name in self.function.names if name in wrt)
        return replace(self, kind=kind, wrt=ordered)

    def parts(self, args: Any) -> Parts:
        """Arguments apart."""
        ends = list(accumulate((len(self.function.names), self.takes_result, self.kind in HAS_COTANGENT)))
        inputs, result, cotangent, tangents = (list(args[a:b]) for a, b in pairwise((0, *ends, len(args))))
        step = len(self.wrt) or 1
        return Parts(inputs, result, cotangent, [tangents[k : k + step] for k in range(0, len(tangents), step)])

    def kernel(self, target: str) -> Kernel:
        """The kernel that computes it."""
        return self.engine.kernel(self._requested(target))

    def identity(self, target: str) -> str:
        """All that its results depend on, for programs that outlive the process."""
        return repr((__version__, self.digest, self._requested(target)))

    def _requested(self, target: str) -> Request:
        if self.kind not in _SWEEPS:
            return replace(self.request, target=target)
        return replace(
            self.request, target=target, product=Product(_SWEEPS[self.kind], self.wrt, "ambient", self.takes_result)
        )
