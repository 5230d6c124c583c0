"""Kernels of calls, on tensors: NumPy's view of memory on the processor, the tensors themselves on a card.

Nothing is copied from one device to another. Kernels are made at the first tensors of a type and a device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qddot.compiler.runtime.kernel import Kernel
from qddot.dynamics.constrained_solver import MAX_DEPENDENCE, solver_of
from qddot.errors import InputError
from qddot.torch.call import Signature, call_of

_TYPES = {torch.float64: "float64", torch.float32: "float32"}
_NEEDS_SOME_MASS = ("center_of_mass", "momentum", "centroidal_momentum")
_DIVIDES_BY_MASS = (
    *("forward_dynamics", "hybrid_dynamics", "mass_matrix_inverse", "operational_space", "acceleration_by_force"),
    *("dynamically_consistent_inverse", "null_space_projector", "constrained_"),
)

_programs: dict[str, Program] = {}  # by the call's string


class Program(Signature):
    """A call with its kernels."""

    def __init__(self, key: str) -> None:
        super().__init__(call_of(key))
        self._kernels: dict[tuple[Any, bool], Kernel] = {}  # by type, and whether on the processor
        self._has_loops = self.engine.model.is_constrained
        self._check_model()

    def __call__(self, inputs: Sequence[Tensor]) -> Tensor:
        """The result for tensors of one type, on one device."""
        first = inputs[0]
        dtype, index = first.dtype, first.get_device()
        for x in inputs:
            if x.dtype is not dtype or x.get_device() != index:
                raise self._mixed(inputs)
        kernel = self._kernels.get((dtype, index < 0))
        if kernel is None:
            kernel = self._made(dtype, first.device)
        if index < 0:
            result: Any = kernel(*[_array(x) for x in inputs])
            result = torch.from_numpy(result if type(result) is np.ndarray else np.asarray(result))
        else:
            result = kernel(*[x.detach() for x in inputs])
        return self._closed(result) if self._has_loops else result

    def _made(self, dtype: torch.dtype, device: torch.device) -> Kernel:
        """The kernel for a type and a kind of device, made once."""
        if dtype not in _TYPES:
            raise InputError(
                f"{self.call.function}: tensors of {dtype} are not computed with; take .float() or .double(), "
                f"or torch.autocast, under which half precision becomes float32"
            )
        if device.type not in ("cpu", "cuda"):
            raise InputError(f"{self.call.function}: tensors on {device} are not computed with; take 'cpu' or 'cuda'")
        request = replace(self.request, dtype=_TYPES[dtype], target=device.type)
        made = self._kernels[dtype, device.type == "cpu"] = self.engine.kernel(request)
        return made

    def _mixed(self, inputs: Sequence[Tensor]) -> InputError:
        """For tensors of several types or devices."""
        shown = ", ".join(f"{name} {x.dtype} on {x.device}" for name, x in zip(self.inputs, inputs, strict=False))
        return InputError(
            f"{self.call.function}: {shown.replace('torch.', '')}: nothing is cast or copied between devices; "
            f"take .to(…) so that all have one type and one device"
        )

    def _check_model(self) -> None:
        """An error where the robot has no mass that the function needs."""
        model, name = self.engine.model, self.call.function
        if name.startswith(_NEEDS_SOME_MASS) and model.mass == 0.0 and not self.call.free:
            raise InputError(f"robot {model.name!r} has no mass, so it has no centre of mass")
        if name.startswith(_DIVIDES_BY_MASS) and not self.call.free:  # which may bring the mass
            self.engine.solvability.require_mass(dict(self.request.static).get("prescribed", ()))
        if name.startswith("constrained_") and solver_of(self.engine).has_other_ranks:
            raise InputError(
                f"robot {model.name!r} can be assembled in ways that have more independent constraints than usual, which "
                f"its kernels cannot tell; robot.{name} computes it for NumPy's arrays"
            )

    def _closed(self, result: Tensor) -> Tensor:
        """NaN where loops are open, or rows of the constraints depend on each other: what follows would be wrong."""
        name = self.call.function
        if self.call.vjp or self.call.jvp or not name.startswith("constrained_") or "derivatives" in name:
            return result
        solver = solver_of(self.engine)
        near, off = result[..., -3:-2], result[..., -2:]
        most = solver.open_limit**2
        limit = MAX_DEPENDENCE if "hybrid" in name else solver.dependence_limit
        good = (near >= 0.0) & (near < limit) & (off <= most).all(-1, keepdim=True)
        return torch.where(good, result, torch.nan)


def _array(x: Tensor) -> np.ndarray[Any, Any]:
    """NumPy's view of a tensor on the processor."""
    try:
        found: np.ndarray[Any, Any] = x.detach().numpy() if x.requires_grad else x.numpy()
        return found
    except RuntimeError as error:
        if x.is_neg():
            return _array(x.resolve_neg())
        raise InputError(
            f"a tensor has no numbers to compute with ({error}); maps over gradients are torch.func's: take "
            f"torch.func.vmap and jacrev instead of is_grads_batched=True or vectorize=True"
        ) from None


def program(key: str) -> Program:
    """The program of a call, made once."""
    found = _programs.get(key)
    if found is None:
        found = _programs[key] = Program(key)
    return found
