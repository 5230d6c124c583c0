"""Arguments as arrays of one type, which kernels compute in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from qddot.errors import InputError


def alike(function: str, names: Sequence[str], arrays: Sequence[Any]) -> list[Any]:
    """float64 if one of them is, else float32. Integers become floats, and a Python number takes the others' type."""
    found = [x if isinstance(x, float | int) else _floats(function, name, x) for name, x in zip(names, arrays, strict=True)]
    dtype = jnp.result_type(float if all(isinstance(x, float | int) for x in found) else jnp.float32, *found)
    return [jnp.asarray(x, dtype) for x in found]


def _floats(function: str, name: str, given: Any) -> Any:
    """An array of a type that is computed with."""
    if hasattr(given, "__torch_function__"):
        raise InputError(
            f"{function}: {name} is a tensor of PyTorch; take robot.torch(), or jax.dlpack.from_dlpack({name}) here"
        )
    try:
        x = jnp.asarray(given)
    except (TypeError, ValueError) as error:
        raise InputError(f"{function}: {name} is no array of numbers ({error})") from None
    if jnp.issubdtype(x.dtype, jnp.integer) or x.dtype == bool:
        x = x.astype(float)
    if x.dtype not in (jnp.float32, jnp.float64):
        raise InputError(f"{function}: {name} holds {x.dtype}, and kernels compute in float32 or float64; cast it")
    return x


def zeros(shape: tuple[int, ...], function: str, names: Sequence[str], arrays: Sequence[Any]) -> Any:
    """Zeros of the type that these arguments have together."""
    return jnp.zeros(shape, alike(function, names, arrays)[0].dtype)
