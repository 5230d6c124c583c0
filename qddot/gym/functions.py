"""A user's functions of all environments at once: rewards, ends of episodes, observations; NumPy's, or compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qddot.compiler.runtime.array_kinds import on_host
from qddot.dynamics.pipeline import kernel_of, unknowns
from qddot.errors import InputError
from qddot.scalars import where
from qddot.spatial.tape import record

Array = NDArray[Any]
Function = Callable[..., Any]


class Traced(NamedTuple):
    """A function of one environment's arrays that is to be compiled."""

    function: Function


def traced(function: Function) -> Traced:
    """Marks a function of one environment, to be compiled for all of them.

    It gets q (nq,), v (nv,) and, for rewards, the action, and may do what laws of control may do (docs/simulation.md).
    Functions that are not marked are given arrays of all environments, (num_envs, nq) and so on, and are NumPy's own.
    """
    return Traced(function)


class Compiled:
    """A traced function as a kernel; `shape` is that of its result for one environment, None if that is to be found out."""

    def __init__(self, role: str, function: Function, sizes: Sequence[int], shape: tuple[int, ...] | None) -> None:
        what = f"{role}: the function {getattr(function, '__name__', type(function).__name__)!r}"
        found = list[tuple[int, ...]]()

        def run(*vectors: Array) -> Array:
            given = function(*vectors)
            result = np.asarray(where(given, 1.0, 0.0) if role == "terminated" else given)  # that one is a condition
            if shape is not None and result.shape != shape:
                raise InputError(f"{what} gives an array of shape {result.shape}; it must be {shape}")
            found.append(result.shape)
            return result.reshape(-1)

        tape = record(what, run, sizes)
        graph, vectors = unknowns(sizes)
        names, own = ("q", "v", "action")[: len(sizes)], [(n,) for n in sizes]
        result, size = np.array(tape(*vectors)), (len(tape.outputs),)
        self.kernel, self.shape = kernel_of(f"{role} of environments", graph, result, names, own, size), found[-1]

    def __call__(self, *arrays: Array) -> Array:
        """The results of all environments."""
        result = self.kernel(*arrays)
        return np.asarray(result.reshape(*result.shape[:-1], *self.shape))


def numbers(role: str, result: Any, shape: tuple[int, ...] | None, count: int) -> Array:
    """What a user's function gives for all environments, checked: (num_envs, *shape)."""
    array = np.asarray(on_host(result, f"the result of {role}"))
    if array.dtype.kind not in "fiub":
        raise InputError(f"{role} gives {array.dtype}; it must give real numbers")
    if shape is not None and array.shape == shape:  # the same for all
        array = np.broadcast_to(array, (count, *shape))
    if array.ndim == 0 or len(array) != count or (shape is not None and array.shape != (count, *shape)):
        wanted = f"({count}, …)" if shape is None else f"{(count, *shape)}"
        raise InputError(f"{role} gives an array of shape {array.shape}; for all environments it must be {wanted}")
    return array
