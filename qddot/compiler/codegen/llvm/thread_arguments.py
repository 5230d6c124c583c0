"""What a GPU thread's functions are given: where the numbers of its state are, and where its results go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from qddot.compiler.ir.program import Program

Shape = tuple[int, ...]

WARP = 32  # threads that run together
LOCAL, GLOBAL, SHARED = 0, 1, 3  # memories, by LLVM's numbers of their address spaces


@dataclass(frozen=True)
class GridOperand:
    """An argument of a kernel: number `index`, with so many numbers a state, in one of the memories."""

    index: int
    shape: Shape
    space: int = GLOBAL
    strided: bool = False  # whether the numbers of a state are apart from each other
    place: int | None = None  # the operand whose shared memory it takes; None: its own
    result_from: int | None = None  # an input that an earlier kernel wrote: numbers of the result, from this one on
    kept_from: int | None = None  # numbers that are kept of a state in scratch memory between kernels, from this one on

    @property
    def size(self) -> int:
        """Numbers of one state."""
        return prod(self.shape)

    @property
    def staged(self) -> bool:
        """Whether it is in shared memory."""
        return self.space == SHARED

    @property
    def memory(self) -> str:
        """The name of its shared memory."""
        return f"%memory{self.index if self.place is None else self.place}"

    @property
    def pointer(self) -> str:
        """The type of pointers to its numbers."""
        return f"ptr addrspace({self.space})" if self.space else "ptr"

    @property
    def pitch(self) -> int:
        """Numbers of shared memory from one state's to the next: no two threads of a warp use the same bank, or few."""
        return self.size + (self.size % 4 == 0)

    @property
    def strides(self) -> list[str]:
        """The names of its strides within a state."""
        return [f"%c{self.index}_{j}" for j in range(len(self.shape))]

    @property
    def parameters(self) -> str:
        """Of functions that use it: where its numbers of this thread's state are."""
        pointer = f"{self.pointer} %p{self.index}"
        return ", ".join([pointer, *(f"i64 {c}" for c in self.strides if self.strided)])

    def address(self, name: str, k: int, T: str) -> tuple[list[str], str]:
        """Lines, and the pointer to its k-th number."""
        if not self.strided:
            k *= 1 if self.kept_from is None else WARP  # a number of all states of a warp lies side by side
            return [f"  {name} = getelementptr {T}, {self.pointer} %p{self.index}, i64 {k}"], name
        lines, at = list[str](), f"%p{self.index}"
        for j, stride in enumerate(self.strides):
            inner = prod(self.shape[j + 1 :])
            number = k // inner % self.shape[j]
            if number:
                lines.append(f"  {name}.{j}o = mul i64 {stride}, {number}")
                lines.append(f"  {name}.{j} = getelementptr {T}, ptr addrspace(1) {at}, i64 {name}.{j}o")
                at = f"{name}.{j}"
        return lines, at


@dataclass(frozen=True)
class Arguments:
    """What the functions of a thread are given: operands of the inputs, that of the result, where each input number is.

    Sines and cosines of numbers of the first input are computed before anything else, into shared or local memory.
    """

    inputs: Sequence[GridOperand]
    output: GridOperand
    angles: Sequence[int] = ()  # which numbers of the first input they are of
    angle_space: int = SHARED

    @property
    def angle_pointer(self) -> str:
        """The type of pointers to sines and cosines."""
        return f"ptr addrspace({self.angle_space})" if self.angle_space else "ptr"

    @property
    def angle_pitch(self) -> int:
        """Numbers of shared memory from one state's sines and cosines to the next one's."""
        return 2 * len(self.angles) + 1 if self.angles else 0

    def input(self, k: int) -> tuple[GridOperand, int]:
        """The operand of the k-th number of all inputs, and which number of it that is."""
        for x in self.inputs:
            if k < x.size:
                return x, k
            k -= x.size
        raise ValueError(f"no input has number {k}")

    @property
    def parameters(self) -> str:
        """Of each function, with their types."""
        given = [x.parameters for x in self.inputs]
        if self.output.staged:
            given += ["ptr addrspace(3) %tiles", "ptr addrspace(1) %to", "i64 %to.s", "i32 %rows", "i32 %lane"]
        else:
            given.append(self.output.parameters)
        return ", ".join([*given, f"{self.angle_pointer} %sc", "ptr %mem", "ptr %env"])


def angles_of(program: Program, size: int) -> list[int]:
    """Which numbers of the first input, which has `size`, sines and cosines are taken of."""
    graph = program.graph
    found = {graph.args[n][0] for n in program.body if graph.ops[n] in ("sin", "cos")}
    return sorted(k for a in found if graph.ops[a] == "input" and (k := graph.args[a][0]) < size)
