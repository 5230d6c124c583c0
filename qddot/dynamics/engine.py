"""Evaluating a robot's functions: compiled kernels where inputs are real numbers, the algorithms as written elsewhere.

An `Engine` belongs to one model. It makes kernels at their first use, keeps them, checks inputs where a kernel refuses
them, and says which motion has no mass where a result is not finite. The facade, the constrained solver and simulations
stand on it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from qddot.compiler.runtime.array_kinds import (
    Given,
    are_doubles,
    given,
    handed_back,
    mapped,
    no_gradients,
    on_host,
)
from qddot.compiler.runtime.forks import guard
from qddot.compiler.runtime.kernel import Kernel
from qddot.compiler.runtime.llvm_compile import invalid_calls
from qddot.dynamics import pipeline
from qddot.dynamics.catalogue import lookup
from qddot.dynamics.input_checks import AXES, InputChecks
from qddot.dynamics.request import Request
from qddot.dynamics.solvability import Solvability
from qddot.errors import KernelTooLargeError, QddotWarning, one_name, outside
from qddot.mechanism.configurations import batched
from qddot.mechanism.model import Model
from qddot.spatial.traced_array import exchanging

Array = NDArray[Any]
SOLVES = ("forward_", "hybrid_", "mass_matrix_inverse", "acceleration_by_force", "operational_space_inverse_inertia")

guard(exchanging)


class Engine:
    """The functions of one model, evaluated. With `compiled=False` they run the readable algorithms."""

    # What evaluates a function so that gradients are kept, of (engine, what is given, function, inputs, other arguments).
    differentiable: Callable[[Engine, Given, str, Sequence[Any], Mapping[str, Any]], Any] | None = None

    def __init__(self, model: Model, compiled: bool = True) -> None:
        self.model, self.compiled = model, compiled
        self.checks, self.solvability = InputChecks(model), Solvability(model)
        self.kept: dict[Any, Any] = {}  # of whoever stands on this engine: solvers, time loops, choices
        self._invalid_calls = invalid_calls()
        self._kernels: dict[Any, Kernel] = {}
        self._fast_calls: dict[Any, Callable[..., Any]] = {}  # for one state; they return None for anything else
        self._fast_single_calls: dict[Any, Callable[..., Any]] = {}

    @cached_property
    def tree(self) -> Engine:
        """The engine of the spanning tree: loops cut open, no other constraints."""
        return Engine(replace(self.model, loops=(), constraints=()), self.compiled)

    def kernel(self, request: Request) -> Kernel:
        """The kernel for a request, compiled once."""
        found = self._kernels.get(request)
        if found is None:
            found = self._kernels[request] = pipeline.build(self.model, request)
        return found

    def evaluate(self, function: str, *inputs: Any, **static: Any) -> Array:
        """The kernel's result; the eager algorithm's where inputs are no real numbers or there is nothing to compile."""
        try:
            fast = self._fast_calls.get((function, *static.values()) if static else function)
        except TypeError:  # a list of frames has no place in a table
            one_name(static.get("frame"), "frame")
            raise
        if fast is not None and (result := fast(*inputs)) is not None:
            return result
        dtype = "float64"
        if not are_doubles(inputs):
            found = self._given(function, inputs)
            if found.kind is not None:
                return self._of_package(found, self.evaluate, function, inputs, static)
            dtype = dtype if found.dtype is None else found.dtype.name
        result = self._by_kernel(function, inputs, static, dtype)
        if result is None:
            result = self._eager(function, inputs, static)
        return result if dtype == "float64" else result.astype(dtype, copy=False)

    def solve(self, axes: int, function: str, *inputs: Any, **static: Any) -> Array:
        """As `evaluate`, for what divides by the mass matrix; `axes` counts the axes of one state's result."""
        lost = self.solvability.has_lost
        try:
            fast = self._fast_calls.get((function, *static.values()) if static else function)
        except TypeError:
            one_name(static.get("frame"), "frame")
            raise
        if fast is not None and (result := fast(*inputs)) is not None and not lost(axes, function, result):
            return result
        dtype = "float64"
        if not are_doubles(inputs):
            found = self._given(function, inputs)
            if found.kind is not None:
                return self._of_package(found, partial(self.solve, axes), function, inputs, static)
            dtype = dtype if found.dtype is None else found.dtype.name
        self.solvability.require_mass(static.get("prescribed", ()))
        before = self._invalid_calls.value
        result = self._by_kernel(function, inputs, static, dtype)
        if result is None:
            result = self._eager(function, inputs, static)
        elif result.ndim > axes and self._invalid_calls.value == before:
            return result
        if lost(axes, function, result) or (result.ndim == axes and not np.isfinite(result).all()):
            self.solvability.explain_lost(axes, function, inputs, result)
        return result if dtype == "float64" else result.astype(dtype, copy=False)

    # ---- where and in which type

    def _given(self, function: str, inputs: Sequence[Any]) -> Given:
        """What the inputs are, by their names."""
        return given(dict(zip(lookup(function, "auto")[0].inputs, inputs, strict=False)))

    def _of_package(
        self, found: Given, run: Callable[..., Any], function: str, inputs: Sequence[Any], static: Mapping[str, Any]
    ) -> Any:
        """The result for arrays of another package than NumPy: on their card by a kernel there, else as NumPy's arrays."""
        if found.keeps_gradients:
            if self.differentiable is None:
                raise no_gradients(found.kind, found.keeps_gradients, function)
            return self.differentiable(self, found, function, inputs, static)
        if found.on_device:
            dtype = "float64" if found.dtype is None else "float32"
            if function.startswith(SOLVES):
                self.solvability.require_mass(static.get("prescribed", ()))
            return self.kernel(replace(_request(function, static), dtype=dtype, target="cuda"))(*inputs)
        names = lookup(function, "auto")[0].inputs
        arrays = [mapped(on_host, x, what) for what, x in zip(names, inputs, strict=False)]
        return handed_back(found, run(function, *arrays, *inputs[len(names) :], **static))

    def _by_kernel(
        self, function: str, inputs: Sequence[Any], static: Mapping[str, Any], dtype: str = "float64"
    ) -> Array | None:
        """The kernel's result; None for what a kernel is not for."""
        key, fast_calls = (function, *static.values()) if static else function, self._fast_calls
        if dtype != "float64":
            fast_calls = self._fast_single_calls
            if (fast := fast_calls.get(key)) is not None and (result := fast(*inputs)) is not None:
                return result
        kernel = self._kernels.get((dtype, key))
        if kernel is None:
            if self.model.nv == 0 or not self.compiled:
                return None
            try:
                request = replace(_request(function, static), dtype=dtype)
                kernel = self._kernels[dtype, key] = self.kernel(request)
            except KernelTooLargeError as error:
                warnings.warn(f"{error}; it is not compiled, and slow", QddotWarning, stacklevel=outside())
                return None
            if kernel.one_state is not None:
                fast_calls[key] = kernel.one_state
        try:
            result = kernel(*inputs)
        except ValueError:  # InputError, or NumPy's of lists that are no arrays
            return None  # the eager algorithm takes other kinds of numbers, and explains what is wrong
        if self.checks.with_quaternions and np.ndim(inputs[0]) == 1 and not np.isfinite(result).all():
            self.checks.all(function, kernel.names, inputs)
        return result

    def _eager(self, function: str, inputs: Sequence[Any], static: Mapping[str, Any]) -> Array:
        static = dict(static)
        found, _, algorithm = lookup(function, static.pop("method", "auto"))
        arrays = self.checks.all(function, found.inputs, inputs)
        try:
            with np.errstate(all="ignore"):
                result = algorithm(self.solvability.guarded, *arrays, **static)
        except ZeroDivisionError:
            result = np.full(found.shape(self.model, static), np.nan)
        return batched(len(found.output(self.model)), result, *arrays, axes=[AXES.get(x, 1) for x in found.inputs])


def _request(function: str, static: Mapping[str, Any]) -> Request:
    rest = {name: x for name, x in static.items() if name != "method"}
    return Request(function, method=static.get("method", "auto"), static=tuple(rest.items()))


class HasEngine(Protocol):
    """A robot, as the rooms below its facade see it."""

    @property
    def engine(self) -> Engine: ...
