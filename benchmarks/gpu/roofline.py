"""What bounds a kernel: moving its numbers through the card's memory, and its arithmetic."""

from typing import Any

import numpy as np


def of(machine: dict[str, Any], dtype: str, numbers: int, instructions: int, seconds: float) -> dict[str, Any]:
    """The least seconds a state, and how near to them a kernel of so many numbers and operations a state comes.

    `copy_share` is of the measured bandwidth of copies; `share` of whichever bound is higher. Operations are those of the
    program after fusing: each takes the place of a multiply-add at least; sines, roots and quotients take that of more.
    """
    moved = numbers * np.dtype(dtype).itemsize
    rate = machine["multiply_adds_per_second"].get(dtype) or 0.0
    memory = moved / machine["copy_bytes_per_second"]
    arithmetic = instructions / rate if rate else 0.0
    least = max(memory, arithmetic)
    return {
        "bytes": moved,
        "instructions": instructions,
        "bytes_per_second": moved / seconds,
        "copy_share": memory / seconds,
        "bound": "memory" if memory >= arithmetic else "arithmetic",
        "roofline_states_per_second": 1.0 / least,
        "share": least / seconds,
    }
