"""Arguments as arrays of one type, which kernels compute in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from qddot.errors import InputError


def alike(function: str, names: Sequence[str], arrays: Sequence[Any]) -> list[Any]:
    """float64 if one of them is, else float32. Integers become floats, and a Python number takes the others' type."""
    found = []
    for name, given in zip(names, arrays, strict=True):
        if isinstance(given, float | int):
            found.append(given)
            continue
        try:
            x = jnp.asarray(given)
        except (TypeError, ValueError) as error:
            raise InputError(f"{function}: {name} is no array of numbers ({error})") from None
        if jnp.issubdtype(x.dtype, jnp.integer) or x.dtype == bool:
            x = x.astype(float)
        if x.dtype not in (jnp.float32, jnp.float64):
            raise InputError(f"{function}: {name} holds {x.dtype}, and kernels compute in float32 or float64; cast it")
        found.append(x)
    dtype = jnp.result_type(float if all(isinstance(x, float | int) for x in found) else jnp.float32, *found)
    return [jnp.asarray(x, dtype) for x in found]
