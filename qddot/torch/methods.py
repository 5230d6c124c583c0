"""The methods of `Dynamics` as a table: a row for each function of the catalogue, with `Robot`'s arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from qddot.dynamics.catalogue import ALL
from qddot.errors import unexpected

_FORCES = "_with_forces"
_DEFAULTS: dict[str, Any] = {"f_ext": None, "expressed_in": "frame", "rows": range(6), "reference": "body"}


class InverseDynamicsDerivatives(NamedTuple):
    """∂tau/∂q in the tangent space, ∂tau/∂v, and ∂tau/∂a."""

    dq: Tensor
    dv: Tensor
    da: Tensor


class ForwardDynamicsDerivatives(NamedTuple):
    """The derivatives of accelerations, or of constraint forces, with respect to q in the tangent space, v and tau."""

    dq: Tensor
    dv: Tensor
    dtau: Tensor


class ByAllInputs(NamedTuple):
    """Those with respect to q in the tangent space, v, a and tau."""

    dq: Tensor
    dv: Tensor
    da: Tensor
    dtau: Tensor


class HybridDynamicsDerivatives(NamedTuple):
    """Of all accelerations, and of all joint forces."""

    a: ByAllInputs
    tau: ByAllInputs


class SecondDerivatives(NamedTuple):
    """∂²/∂q∂q, ∂²/∂q∂v, ∂²/∂v∂v, and the derivative of M or M⁻¹ with respect to q."""

    dqq: Tensor
    dqv: Tensor
    dvv: Tensor
    dM: Tensor


class Method(NamedTuple):
    """A method: the function that it evaluates, its arguments, and what is made of the result."""

    function: str
    inputs: tuple[str, ...]
    positional: tuple[str, ...]
    keywords: tuple[str, ...]
    finish: Callable[[Any], Any] | None = None

    @property
    def takes_forces(self) -> bool:
        """Whether there are external forces beside its inputs."""
        return "f_ext" in self.positional

    @property
    def is_plain(self) -> bool:
        """Whether its inputs are all it needs."""
        return not {"frame", "rows", "prescribed", "by"} & {*self.positional, *self.keywords}

    def default(self, name: str) -> Any:
        """Of an argument; `inspect.Parameter.empty` where there is none."""
        return _DEFAULTS.get(name, inspect.Parameter.empty)

    def bound(self, args: Sequence[Any], given: Mapping[str, Any], free: Sequence[str]) -> dict[str, Any]:
        """All arguments by name, defaults among them; free parameters are keyword arguments."""
        if len(args) > len(self.positional):
            raise TypeError(f"{self.function}() takes {', '.join(self.positional)}; {len(args)} arguments were given")
        values = dict(zip(self.positional, args, strict=False))
        for name, x in given.items():
            if name in values:
                raise TypeError(f"{self.function}() got {name} twice")
            if name not in self.positional and name not in self.keywords and name not in free:
                raise unexpected(self.function, name, (*self.positional, *self.keywords, *free))
            values[name] = x
        for name in (*self.positional, *self.keywords):
            if name not in values:
                if name not in _DEFAULTS:
                    raise TypeError(f"{self.function}() needs {name}")
                values[name] = _DEFAULTS[name]
        return values


def _stacked(kind: type[Any], axis: int) -> Callable[[Tensor], Any]:
    """What is stacked along an axis, by name."""
    return lambda x: kind(*x.unbind(axis))


def _hybrid(x: Tensor) -> HybridDynamicsDerivatives:
    of_a, of_tau = x.unbind(-4)
    return HybridDynamicsDerivatives(ByAllInputs(*of_a.unbind(-3)), ByAllInputs(*of_tau.unbind(-3)))


def _two(x: Tensor) -> tuple[Tensor, Tensor]:
    first, second = x.unbind(-2)
    return first, second


_FINISH: dict[str, Callable[[Any], Any]] = {
    "hybrid_dynamics": _two,
    "hybrid_dynamics_derivative": _two,
    "hybrid_dynamics_derivatives": _hybrid,
    "inverse_dynamics_derivatives": _stacked(InverseDynamicsDerivatives, -3),
    "forward_dynamics_derivatives": _stacked(ForwardDynamicsDerivatives, -3),
    "inverse_dynamics_second_derivatives": _stacked(SecondDerivatives, -4),
    "forward_dynamics_second_derivatives": _stacked(SecondDerivatives, -4),
    "external_force_jacobian": lambda x: x.unflatten(-1, (-1, 6)),
}
_OF_LOOPS = ("constrained_", "loop_joint_forces")  # `loops` has them


def _method(name: str) -> Method:
    function = ALL[name]
    forces = f"{name}{_FORCES}" in ALL
    needs = [x for x in ("frame", "rows") if x in function.needs]
    extra = [*(["f_ext"] if forces else []), *needs, *(["reference"] if name == "jacobian" else [])]
    keywords = [x for x in ("prescribed", "by") if x in function.needs]
    return Method(
        name,
        function.inputs,
        (*function.inputs, *extra),
        (*keywords, *(["expressed_in"] if forces else [])),
        _FINISH.get(name),
    )


METHODS: dict[str, Method] = {
    name: _method(name) for name in ALL if not name.endswith(_FORCES) and not name.startswith(_OF_LOOPS)
}
