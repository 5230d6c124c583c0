"""What a user gives to functions and simulations, checked: arrays and numbers. Errors say which one is wrong, and how."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qddot.compiler.runtime.array_kinds import on_host
from qddot.errors import InputError, shown
from qddot.mechanism.model import Model

Array = NDArray[Any]

UNIT_QUATERNION_TOLERANCE = 2e-6  # of the square: looser than rounding of float32 states, tighter than any real mistake
AXES = {"f_ext": 2, "df_ext_dp": 2}  # of one state's input; the others have one
_MOST = 2**53  # whole numbers that a float tells from each other


def _array(x: Any, what: str) -> Array:
    """NumPy's array of what is given: tensors and the like on the host, without a copy, too."""
    x = on_host(x, what)
    try:
        return np.asarray(x)
    except ValueError:
        raise InputError(f"{what} is a ragged list: its rows have different lengths; give an array") from None


def numbers(x: ArrayLike, what: str) -> Array:
    """An array of numbers of any kind; integers and float32 become float64."""
    array = _array(x, what)
    if array.dtype.kind in "iub" or array.dtype == np.float32:
        array = array.astype(float)
    of_other = array.dtype == object and not all(hasattr(x, "__sub__") for x in array.flat)
    if array.dtype.kind not in "fcO" or of_other:
        raise InputError(f"{what} must hold numbers, not {array.dtype}")
    return array


def real_numbers(x: Any, what: str) -> Array:
    """An array of real numbers, its own copy where it must be made."""
    array = _array(x, what)
    if array.dtype.kind not in "fiub":
        raise InputError(f"{what} must hold real numbers, not {array.dtype}")
    return array.astype(float, copy=False)


def finite(x: Any, what: str) -> float:
    if not _is_finite(x):
        raise InputError(f"{what} is {shown(x)}; it must be a finite number")
    return float(x)


def positive(x: Any, what: str, unit: str = "") -> float:
    if not _is_finite(x) or x <= 0.0:
        of_unit = f", in {unit}" if unit else ""
        raise InputError(f"{what} is {shown(x)}; give a finite number greater than zero{of_unit}")
    return float(x)


def _is_finite(x: Any) -> bool:
    is_number = isinstance(x, float | int | np.floating | np.integer) and not isinstance(x, bool)
    return is_number and bool(abs(x) <= sys.float_info.max)


def count(x: Any, what: str) -> int:
    if isinstance(x, bool) or not isinstance(x, int | np.integer) or x < 1:
        raise InputError(f"{what} is {shown(x)}; it must be a whole number of one or more")
    if x > _MOST:
        raise InputError(f"{what} is {shown(x)}; a time of that many steps is no longer told from the next")
    return int(x)


def all_finite(arrays: Sequence[Any]) -> bool:
    return all(bool(np.isfinite(np.asarray(x)).all()) for x in arrays)


class InputChecks:
    """The shapes that a model's arrays must have."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def shaped(self, x: ArrayLike, n: int, what: str, size: str) -> Array:
        """An array whose last axis has n entries."""
        array = numbers(x, what)
        if array.ndim == 0 or array.shape[-1] != n:
            raise InputError(
                f"{what} has shape {array.shape}, but its last axis must have {n} entries: "
                f"robot {self.model.name!r} has {size} = {n}"
            )
        return array

    def q(self, q: ArrayLike, what: str = "q") -> Array:
        """Configurations, their quaternions of unit length."""
        array = self.shaped(q, self.model.nq, what, "nq")
        for i in self.with_quaternions if array.dtype != object else ():
            quaternion = array[..., self.model.slots[i].q][..., -4:]
            off = np.max(np.abs(np.sum(quaternion * quaternion, axis=-1).real - 1.0), initial=0.0)
            if off > UNIT_QUATERNION_TOLERANCE:
                raise InputError(
                    f"the quaternion of joint {self.model.joint_names[i]!r} in {what} is not of unit length "
                    f"(its square is off by {off:.3g}); use robot.normalize(q)"
                )
        return array

    @cached_property
    def with_quaternions(self) -> tuple[int, ...]:
        """The joints whose coordinates have a unit quaternion."""
        return tuple(i for i, _ in self.model.outward() if self.model.joint[i].has_unit_quaternion)

    def v(self, v: ArrayLike, what: str) -> Array:
        """Velocities, accelerations or joint forces."""
        return self.shaped(v, self.model.nv, what, "nv")

    def forces(self, f_ext: ArrayLike, what: str) -> Array:
        """A force for each moving link."""
        array = numbers(f_ext, what)
        if array.shape[-2:] != (self.model.n_links, 6):
            raise InputError(
                f"{what} has shape {array.shape}, but must be (..., {self.model.n_links}, 6): "
                f"a force (moment, force) in its own frame for each of robot {self.model.name!r}'s moving links"
            )
        return array

    def all(self, function: str, names: Sequence[str], inputs: Sequence[Any]) -> list[Array]:
        """All inputs of a function, whose batch axes fit together."""
        if len(inputs) != len(names):
            raise InputError(f"{function} takes {', '.join(names)}; {len(inputs)} arrays were given")
        closing = sum(loop.joint.nv for loop in self.model.loops)
        checks: dict[str, Callable[[Any, str], Array]] = {
            "q": self.q,
            "f_ext": self.forces,
            "df_ext_dp": self.forces,
            "gains": lambda x, what: self.shaped(x, 2, what, "gains (k_p, k_d), so it"),
            "tau_loops": lambda x, what: self.shaped(x, closing, what, "degrees of freedom of closing joints"),
        }
        arrays = [checks.get(name, self.v)(x, name) for name, x in zip(names, inputs, strict=True)]
        batches = [a.shape[: a.ndim - AXES.get(n, 1)] for n, a in zip(names, arrays, strict=True)]
        try:
            np.broadcast_shapes(*batches)
        except ValueError:
            shapes = ", ".join(f"{n} {a.shape}" for n, a in zip(names, arrays, strict=True))
            raise InputError(f"the batch axes of {shapes} do not fit together") from None
        return arrays
