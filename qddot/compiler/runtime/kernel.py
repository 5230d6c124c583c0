"""A kernel: a compiled function of arrays, and everything one may want to know about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qddot import notebook
from qddot.compiler.ir.packed_output import Layout
from qddot.errors import InputError

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Info:
    """What a kernel is: its operations by kind, how it was made and why so, how large it is, which parameters it takes.

    `fused` is False on processors without multiply-add instructions: products and sums are rounded apart there, and the
    last bits differ from those of other machines (docs/machines.md).
    """

    function: str
    method: str
    form: str
    dtype: str
    lanes: int
    ops: dict[str, int]
    instructions: int
    code_bytes: int
    compile_seconds: float
    cached: bool
    free: tuple[str, ...] = ()
    why: str = ""
    fused: bool = True
    product: str = ""  # with the Jacobian of the function: "VJP", "JVP", "VJP of the VJP", …
    parts: tuple[tuple[str, Shape], ...] = ()  # of a result that is a row of gradients: of which inputs, and their shapes


class Entry(NamedTuple):
    """How a kernel is called. What makes one knows where the code runs (`runtime.gufunc` for this machine)."""

    call: Callable[..., Any]  # arrays of one state or a batch
    batches: Callable[..., Any]  # the same, without the fast path for one state
    one_state: Callable[..., Any] | None = None  # returns None for anything but one state in the kernel's own type
    ufunc: Any = None
    code: Any = None  # of a card


class Source(NamedTuple):
    """Where the code of a kernel comes from: its LLVM text is not kept, but rendered again on demand."""

    render: Callable[[], str]
    assemble: Callable[[str], str]
    remake: tuple[Callable[..., Kernel], tuple[Any, ...]] | None = None  # what gives the kernel in another process
    small_batches: Callable[[], Any] | None = None  # makes other code, for few states, when it is first needed; or None


class Kernel:
    """Call it like a function of arrays: one state or any leading batch axes, `out=` if you like.

    Loops that call it with `out=` for one state at a time are fastest by `call = kernel.__call__` (docs/decisions/0025).
    """

    # What Python calls lies in each kernel: a compiled function, which is reached without any code in between.
    __slots__ = ("__call__", "__dict__", "__weakref__")

    if TYPE_CHECKING:

        def __call__(self, *args: Any, out: NDArray[Any] | None = None) -> NDArray[Any]: ...

    def __init__(
        self,
        entry: Entry,
        names: Sequence[str],
        inputs: Sequence[Shape],
        output: Shape,
        info: Info,
        explain: Callable[[], str],
        layout: Layout | None = None,
        source: Source | None = None,
    ) -> None:
        self.info, self.explain, self.layout = info, explain, layout
        self.names, self.inputs, self.output = tuple(names), tuple(inputs), output
        self.ufunc, self.one_state, self.code = entry.ufunc, entry.one_state, entry.code
        self._batches, self._source = entry.batches, source
        object.__setattr__(self, "__call__", entry.call)

    @property
    def on_device(self) -> dict[str, Any]:
        """What the driver says of a kernel on a card: registers and local memory of a thread, occupancy, and the like."""
        if self.code is None:
            raise InputError(f"{self.info.function}: this kernel runs on the processor; target='cuda' is for a card")
        facts: dict[str, Any] = self.code.facts()
        return facts

    @property
    def llvm_ir(self) -> str:
        """The LLVM IR that the kernel was compiled from."""
        return self._known_source().render()

    @property
    def assembly(self) -> str:
        """The kernel's machine code as assembly: it is compiled again."""
        source = self._known_source()
        return source.assemble(source.render())

    def _known_source(self) -> Source:
        if self._source is None:
            raise InputError(f"{self.info.function}: the source of this kernel is not known")
        return self._source

    def unpack(self, result: Any) -> NDArray[Any]:
        """The full array of what a packed kernel gave; `layout` says where its numbers belong."""
        if self.layout is None:
            raise InputError(f"{self.info.function}: this kernel's results are not packed; kernel(..., packed=True) is")
        return self.layout.unpack(result)

    def parts(self, result: Any) -> dict[str, NDArray[Any]]:
        """The gradients in a row that a VJP gave, by the input's name, each in its shape: views of the result."""
        if not self.info.parts:
            raise InputError(f"{self.info.function}: the result of this kernel has no parts; kernel(..., vjp=True) has")
        row = result if hasattr(result, "shape") else np.asarray(result)
        count = sum(prod(shape) for _, shape in self.info.parts)
        if tuple(row.shape[-1:]) != (count,):
            raise InputError(f"a row of gradients has shape {tuple(row.shape)}; its last axis must have {count} numbers")
        found, first = {}, 0
        for name, shape in self.info.parts:
            own = row[..., first : first + prod(shape)]
            found[name] = own.reshape((*own.shape[:-1], *shape))
            first += prod(shape)
        return found

    def finite(self, *args: Any) -> NDArray[np.bool_]:
        """Which samples have finite inputs. The others give results that mean nothing, and spoil no other sample."""
        ok: Any = True
        for x, shape in zip(args, self.inputs, strict=True):
            axes = tuple(range(-len(shape), 0))
            ok = ok & np.isfinite(np.asarray(x)).all(axis=axes)
        return np.asarray(ok)

    def __reduce__(self) -> Any:
        """Machine code belongs to a process: a pickled kernel is what it was made of, and compiled again on arrival."""
        if self._source is None or self._source.remake is None:
            raise TypeError(f"{self.info.function}: a kernel of a function of your own cannot be pickled; make it again")
        return self._source.remake

    def __copy__(self) -> Kernel:
        return self  # nothing about it changes

    def __deepcopy__(self, memo: Any) -> Kernel:
        return self

    def _repr_html_(self) -> str:
        i = self.info
        made = "from the cache" if i.cached else "compiled"
        facts: list[tuple[str, object]] = [
            ("method", f"{i.method}, {i.form}"),
            ("why", notebook.escaped(i.why, notebook.MAX_TEXT_CHARS)),
            ("numbers", f"{i.dtype} × {i.lanes} lanes"),
            ("inputs", ", ".join(f"{n} {s}" for n, s in zip(self.names, self.inputs, strict=True))),
            ("result", str(self.output)),
            ("code", f"{i.instructions:,} instructions, {i.code_bytes:,} bytes"),
            ("time", f"{made} in {1e3 * i.compile_seconds:,.0f} ms"),
        ]
        ops = notebook.table(tuple(i.ops), [[notebook.number(n) for n in i.ops.values()]])
        return notebook.card(f"Kernel {i.function}", "", notebook.table(("", ""), [f for f in facts if f[1]]), ops)

    def __repr__(self) -> str:
        i = self.info
        free = f", free {', '.join(i.free)}" if i.free else ""
        what = f"{i.product} of {i.function}" if i.product else i.function
        return f"<Kernel {what}: {i.method}, {i.form}, {i.dtype} × {i.lanes} lanes, {i.instructions} instructions{free}>"
