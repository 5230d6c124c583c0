"""Methods of `Robot` on arrays of other packages: what is given comes back (docs/arrays.md).

Methods that pass their arrays to one kernel and give its result are left alone: `Engine` finds the kernel for the
arrays' type and place. All others are wrapped here. They compute with NumPy's arrays of doubles on the host.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from qddot.compiler.runtime.array_kinds import (
    DOUBLE,
    NO_ARRAYS,
    SINGLE,
    Given,
    given,
    handed_back,
    mapped,
    no_gradients,
    on_host,
)
from qddot.errors import InputError

if TYPE_CHECKING:
    from qddot.dynamics.engine import Engine

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])

# Methods that only call `Engine.evaluate` or `Engine.solve`, which see to all kinds of arrays.
DIRECT = frozenset(
    {
        *("inverse_dynamics", "forward_dynamics", "mass_matrix", "mass_matrix_inverse", "bias_force", "gravity_force"),
        *("coriolis_matrix", "passive_force", "forward_kinematics", "pose", "velocity", "acceleration", "jacobian"),
        *("jacobian_derivative", "kinetic_energy", "potential_energy", "center_of_mass", "momentum"),
        *("centroidal_momentum_matrix", "centroidal_momentum_matrix_derivative", "center_of_mass_jacobian"),
        *("center_of_mass_jacobian_derivative", "operational_space_inverse_inertia", "acceleration_by_force", "regressor"),
        *("external_force_jacobian", "forward_dynamics_inertia_derivatives", "constraint_residual", "constraint_jacobian"),
        *("constraint_bias", "constraint_jacobian_derivatives"),
    }
)
# Methods that give parts of one kernel's result: singles are computed as such, arrays on a card stay there.
OF_ONE_KERNEL = frozenset(
    {
        *("hybrid_dynamics", "inverse_dynamics_derivatives", "forward_dynamics_derivatives", "hybrid_dynamics_derivatives"),
        *("inverse_dynamics_derivative", "forward_dynamics_derivative", "hybrid_dynamics_derivative"),
        *("inverse_dynamics_second_derivatives", "forward_dynamics_second_derivatives"),
    }
)
SEE_TO_DEVICES = frozenset({"simulate"})  # methods that take arrays on a card as they are
_SIMPLE = frozenset((str, int, float, bool, type(None)))


def of_any_package(cls: C) -> C:
    """A class whose public methods take arrays of any package."""
    for name in dir(cls):
        method = inspect.getattr_static(cls, name)
        if not name.startswith("_") and inspect.isfunction(method) and name not in DIRECT:
            setattr(cls, name, taking_any_arrays(method))
    return cls


def taking_any_arrays(method: F, named: str | None = None) -> F:
    """A method that gives arrays of the package that it is given; `named` is the public method that it is a part of."""
    public = named or method.__name__
    names = [x for x in inspect.signature(method).parameters if x != "self"]

    @wraps(method)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _are_simple(args) and (not kwargs or NO_ARRAYS.issuperset(kwargs) or _are_simple(kwargs.values())):
            return method(self, *args, **kwargs)
        arguments = dict(zip((*names, *map(str, range(len(names), len(args)))), args, strict=False))
        found = given(arguments | kwargs)
        if found.kind is None and found.dtype is None:
            return method(self, *args, **kwargs)
        if found.keeps_gradients:
            return _operation(self, found, public)(*args, **kwargs)
        if found.on_device:
            if public not in SEE_TO_DEVICES and (public not in OF_ONE_KERNEL or self.model.is_constrained):
                raise _not_on_device(public, found)
            return method(self, *args, **kwargs)
        convert = on_host if public in OF_ONE_KERNEL and not self.model.is_constrained else _doubles_on_host
        hosted = [mapped(convert, x, what) for what, x in arguments.items()]
        return handed_back(found, method(self, *hosted, **{k: mapped(convert, x, k) for k, x in kwargs.items()}))

    return run  # type: ignore[return-value]


def differentiated(engine: Engine, found: Given, function: str, inputs: Sequence[Any], static: Mapping[str, Any]) -> Any:
    """The result of a function by the operation of a framework that keeps gradients."""
    robot = engine.kept["robot"]()
    return _operation(robot, found, function.removesuffix("_with_forces"))(*inputs, **static)


def _operation(robot: object, found: Given, name: str) -> Callable[..., Any]:
    """The method of this name of `robot.torch()`."""
    make = getattr(robot, "torch", None)
    operation: Callable[..., Any] | None = None if make is None else getattr(make(), name, None)
    if operation is None:
        raise no_gradients(found.kind, found.keeps_gradients, f"Robot.{name}")
    return operation


def _are_simple(values: Iterable[Any]) -> bool:
    for x in values:
        kind = x.__class__
        if kind is np.ndarray:
            if x.dtype is not DOUBLE:
                return False
        elif kind not in _SIMPLE:
            return False
    return True


def _doubles_on_host(x: Any, what: str) -> Any:
    host = on_host(x, what)
    return host.astype(float) if isinstance(host, np.ndarray) and host.dtype == SINGLE else host


def _not_on_device(name: str, found: Given) -> InputError:
    assert found.kind is not None
    return InputError(
        f"Robot.{name} is computed on the CPU by several kernels, and an argument lies on a card; give "
        f"{found.kind.to_host('x')}, or put it together of robot.kernel(…, target='cuda')"
    )
