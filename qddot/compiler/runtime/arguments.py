"""Checks of a kernel's arguments that do not depend on where its code runs, in the words of the kernel's own arguments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from qddot.errors import InputError

Shape = tuple[int, ...]

REAL = "fiub"  # kinds of numbers that can be cast to what kernels take


class Signature(NamedTuple):
    """A function's name, and the names and shapes of what it takes and gives for one state."""

    function: str
    names: tuple[str, ...]
    inputs: tuple[Shape, ...]
    output: Shape

    def check_call(self, given: int, options: Iterable[str]) -> None:
        """How many arrays were given, and the names of keyword arguments other than `out`."""
        takes = f"{self.function} takes {', '.join(self.names)}"
        if wrong := ", ".join(f"{x}=" for x in options):
            raise InputError(f"{takes} in this order, and out=; {wrong} is no option of a kernel")
        if given != len(self.inputs):
            raise InputError(f"{takes}; {given} arrays were given")

    def host_shape(self, k: int, x: Any) -> Shape:
        """The shape of an argument that NumPy can take as an array of real numbers."""
        try:
            array = np.asarray(x)
        except ValueError:
            raise InputError(f"{self.function}: {self.names[k]} is a ragged list; give an array") from None
        if array.dtype.kind not in REAL:
            raise InputError(f"{self.function}: {self.names[k]} must hold real numbers, not {array.dtype}")
        return array.shape

    def check_shape(self, k: int, shape: Shape) -> None:
        """The last axes of an argument are those of one state."""
        own = self.inputs[k]
        if len(shape) < len(own) or tuple(shape[len(shape) - len(own) :]) != own:
            wanted = ", ".join(map(str, own))
            raise InputError(f"{self.function}: {self.names[k]} has shape {tuple(shape)}; its last axes must be ({wanted})")

    def batch(self, shapes: Sequence[Shape]) -> Shape:
        """The batch axes of arguments of these shapes, which broadcast."""
        try:
            return np.broadcast_shapes(*(tuple(x[: len(x) - len(s)]) for x, s in zip(shapes, self.inputs, strict=True)))
        except ValueError:
            shown = ", ".join(f"{n} {tuple(x)}" for n, x in zip(self.names, shapes, strict=True))
            raise InputError(f"{self.function}: the batch axes of {shown} do not fit together") from None

    def check_out(self, out: OutFacts, wanted: Shape) -> None:
        """An array to write results into: its shape, and that it is writeable with a place for each number."""
        if tuple(out.shape) != wanted:
            raise InputError(f"{self.function}: out has shape {tuple(out.shape)}; it must be {wanted}")
        if not out.floating:
            raise InputError(
                f"{self.function}: out holds {out.dtype}; it must hold floating-point numbers, as {out.dtype_wanted}"
            )
        if not out.writeable:
            raise InputError(f"{self.function}: out is read-only")
        if overlaps_itself(out.shape, out.strides, out.itemsize):
            raise InputError(
                f"{self.function}: entries of out share memory (strides {tuple(out.strides)}); "
                "give an array with a place for each"
            )


class OutFacts(NamedTuple):
    """What is checked of an array to write results into, wherever it lies; strides in the unit of `itemsize`."""

    shape: Shape
    strides: Shape
    itemsize: int
    dtype: Any
    dtype_wanted: Any
    floating: bool
    writeable: bool


def check_numpy_out(own: Signature, out: Any, shape: Shape, dtype: np.dtype[Any]) -> None:
    """A NumPy array to write a result of this shape into."""
    if not isinstance(out, np.ndarray):
        raise InputError(f"{own.function}: out is of type {type(out).__name__}; it must be a NumPy array")
    floating = out.dtype.kind == "f"
    facts = OutFacts(out.shape, out.strides, out.itemsize, out.dtype, dtype, floating, out.flags.writeable)
    own.check_out(facts, shape)


def overlaps_itself(shape: Shape, strides: Shape, itemsize: int) -> bool:
    """Whether entries of an array may have the same memory. Exact for everything that slices, transposes or broadcasts."""
    if 0 in shape:
        return False
    reach = itemsize
    for stride, length in sorted((abs(s), n) for s, n in zip(strides, shape, strict=True) if n > 1):
        if stride < reach:
            return True
        reach += stride * (length - 1)
    return False
