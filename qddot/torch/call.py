"""What one call of the operation computes: a function of a robot, or one of its derivatives, known by a string.

The string goes through PyTorch's graphs and files. It names the robot by its model's digest, so that a process that loads
an exported program finds the robot among those that it has registered. Here are names and shapes; nothing is compiled.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from qddot.dynamics import products
from qddot.dynamics.catalogue import lookup
from qddot.dynamics.constrained_solver import solver_of
from qddot.dynamics.engine import Engine
from qddot.dynamics.request import OPTIONS, Request, checked
from qddot.errors import InputError

Shape = tuple[int, ...]
Static = tuple[tuple[str, Any], ...]

_robots: dict[str, Engine] = {}  # by the digest of the model


def register(engine: Engine) -> str:
    """The digest of a robot, which programs may name from now on."""
    digest = engine.model.digest
    _robots.setdefault(digest, engine)
    return digest


class Call(NamedTuple):
    """A function with its arguments that are no arrays, and how often it is differentiated.

    `vjp` and `jvp` count; `wrt` names the inputs and free parameters with respect to which it is differentiated. With
    `known_result` the function's result is an input of its derivative, which nothing is differentiated by.
    """

    robot: str
    function: str
    static: Static = ()
    free: tuple[str, ...] = ()
    vjp: int = 0
    jvp: int = 0
    wrt: tuple[str, ...] = ()
    known_result: bool = False

    @property
    def key(self) -> str:
        """The string that names it."""
        return _written(self)

    @property
    def helps_derivatives(self) -> bool:
        """Whether its result makes its first derivatives cheaper."""
        return not (self.vjp or self.jvp) and self.function in products.HAVE_KNOWN_RESULT


@lru_cache(maxsize=4096)
def _written(call: Call) -> str:
    return json.dumps(call, separators=(",", ":"))


@lru_cache(maxsize=4096)
def call_of(key: str) -> Call:
    """The call that a string names."""
    return Call(*map(_frozen, json.loads(key)))


def _frozen(x: Any) -> Any:
    return tuple(map(_frozen, x)) if isinstance(x, list) else x


class Signature:
    """The inputs of a call by name and shape, and the shape of its result."""

    def __init__(self, call: Call) -> None:
        self.call, self.engine = call, _engine(call)
        model, function = self.engine.model, lookup(call.function, "auto")[0]
        self.request = self._checked()
        own = products.signature(model, function, call.free, dict(self.request.static), self.request.product)
        self.names: tuple[str, ...] = (*function.inputs, *call.free)  # of the function's own inputs
        self.inputs = own.inputs
        self.output, self.parts = own.output, own.parts

    def _checked(self) -> Request:
        """The request for its kernel; an error where there is none."""
        call, engine = self.call, self.engine
        of_constraints = engine.model.is_constrained and call.function.startswith("constrained_")
        rows = solver_of(engine).rows if of_constraints else None
        options: Any = {**{name: x for name, x in call.static if name in OPTIONS}, "free": call.free}
        if call.vjp or call.jvp:
            options |= {"vjp": call.vjp, "jvp": call.jvp, "wrt": call.wrt, "coordinates": "ambient"}
            options |= {"known_result": call.known_result}
        return checked(engine.model, call.function, options, rows)

    def batch(self, shapes: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
        """The batch axes that inputs of these shapes have together; an error where one does not fit."""
        import torch

        if len(shapes) != len(self.inputs):
            names = ", ".join(self.inputs)
            raise InputError(f"{self.call.function} takes {names}; {len(shapes)} tensors were given")
        batches = []
        for (name, own), shape in zip(self.inputs.items(), shapes, strict=True):
            cut = len(shape) - len(own)
            if cut < 0 or tuple(shape[cut:]) != own:
                wanted = f"(..., {', '.join(map(str, own))})" if own else "(...)"
                raise InputError(f"{self.call.function}: {name} has shape {tuple(shape)}, but must be {wanted}")
            batches.append(tuple(shape[:cut]))
        try:
            return tuple(torch.broadcast_shapes(*batches))
        except RuntimeError:
            shown = ", ".join(f"{name} {tuple(s)}" for (name, _), s in zip(self.inputs.items(), shapes, strict=True))
            raise InputError(f"{self.call.function}: the batch axes of {shown} do not fit together") from None


def engine_of(digest: str) -> Engine:
    """The engine of a registered robot."""
    return _robots[digest]


def _engine(call: Call) -> Engine:
    found = _robots.get(call.robot)
    if found is None:
        raise InputError(
            f"this program calls {call.function} of a robot that this process does not know ({call.robot[:12]}…): load "
            f"the same robot and make qddot.torch.Dynamics(robot), which registers it, before the program runs; it knows "
            f"{', '.join(repr(e.model.name) for e in _robots.values()) or 'none'}"
        )
    return found
