"""Sines and cosines of a state's inputs before anything else, as LLVM text: a loop over groups of angles.

Those of a group are computed side by side, for the latency of one to be that of all, without a branch; one branch a group
leads to those that are far from zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qddot.compiler.codegen.llvm.emitter import Emitter
from qddot.compiler.codegen.llvm.thread_arguments import Arguments

_GROUPS = range(4, 8)  # angles side by side


def table_of_angles(name: str, angles: Sequence[int]) -> str:
    """Which numbers of the first input they are, as a constant."""
    numbers = ", ".join(f"i32 {k}" for k in angles)
    return f"@{name}.angles = internal addrspace(4) constant [{len(angles)} x i32] [{numbers}]\n"


def angle_loop(name: str, arguments: Arguments, emitter: Emitter, source: str, side_by_side: bool = True) -> list[str]:
    """Each thread computes those of its own state, from numbers at `source` into %sc.

    The last group may take the last angle several times.
    """
    count = len(arguments.angles)
    size = min(_GROUPS, key=lambda n: (-count % n, n)) if side_by_side else 1
    return _AngleLoop(name, arguments, emitter, source, range(size)).lines() if count else []


def near_or_far(near: Sequence[str], done: str) -> list[str]:
    """Lines of programs for near angles; after them, threads with others go to the label %far, which follows."""
    return [
        "  store i32 0, ptr %mem",
        *near,
        "  %is.far = load i32, ptr %mem",
        "  %some.far = icmp ne i32 %is.far, 0",
        f"  br i1 %some.far, label %far, label %{done}, !prof !0",
        "far:",
    ]


@dataclass(frozen=True)
class _AngleLoop:
    name: str
    arguments: Arguments
    emitter: Emitter
    source: str
    group: range

    @property
    def count(self) -> int:
        return len(self.arguments.angles)

    def lines(self) -> list[str]:
        e, group = self.emitter, self.group
        near = [e.near_sincos(f"pair{j}", f"%angle{j}") for j in group]
        mended = [e.mended_sincos(f"mended{j}", f"%angle{j}", f"pair{j}") for j in group]
        return [
            "  br label %before.angles",
            "before.angles:",
            "  br label %angles",
            "angles:",
            "  %k = phi i32 [ 0, %before.angles ], [ %k.next, %angles.stored ]",
            *(line for j in group for line in self._angle(j)),
            *(line for lines in near for line in lines),
            *(line for j in group for line in self._stored(j, f"pair{j}", "")),
            *(f"  %far.any{j} = or i1 {f'%far.any{j - 1}' if j else 'false'}, %pair{j}.far" for j in group),
            f"  br i1 %far.any{group[-1]}, label %angles.far, label %angles.stored, !prof !0",
            "angles.far:",
            *(line for lines in mended for line in lines),
            *(line for j in group for line in self._stored(j, f"mended{j}", ".far")),
            "  br label %angles.stored",
            "angles.stored:",
            f"  %k.next = add i32 %k, {len(group)}",
            f"  %k.more = icmp ult i32 %k.next, {self.count}",
            "  br i1 %k.more, label %angles, label %after.angles",
            "after.angles:",
        ]

    def _angle(self, j: int) -> list[str]:
        """%angle{j}, the j-th of the group, and %k{j}, which of all it is."""
        x, T, first = self.arguments.inputs[0], self.emitter.T, self.arguments.angles[0]
        lines = [
            f"  %k{j}.any = add i32 %k, {j}",
            f"  %k{j} = call i32 @llvm.umin.i32(i32 %k{j}.any, i32 {self.count - 1})",
        ]
        if tuple(self.arguments.angles) == tuple(range(first, first + self.count)):
            lines.append(f"  %which{j} = add i32 %k{j}, {first}")
        else:
            lines += [
                f"  %which{j}.p = getelementptr i32, ptr addrspace(4) @{self.name}.angles, i32 %k{j}",
                f"  %which{j} = load i32, ptr addrspace(4) %which{j}.p",
            ]
        at = f"i32 %which{j}"
        if x.strided:
            lines += [f"  %which{j}.l = zext i32 %which{j} to i64", f"  %which{j}.o = mul i64 %which{j}.l, {x.strides[0]}"]
            at = f"i64 %which{j}.o"
        return [
            *lines,
            f"  %angle{j}.p = getelementptr {T}, {x.pointer} {self.source}, {at}",
            f"  %angle{j} = load {T}, {x.pointer} %angle{j}.p",
        ]

    def _stored(self, j: int, pair: str, tag: str) -> list[str]:
        T, p, memory = self.emitter.T, f"%to{j}{tag}", self.arguments.angle_pointer
        return [
            self.emitter.of_pair(f"sin{j}{tag}", pair, "sin"),
            self.emitter.of_pair(f"cos{j}{tag}", pair, "cos"),
            f"  {p}.k = shl i32 %k{j}, 1",
            f"  {p} = getelementptr {T}, {memory} %sc, i32 {p}.k",
            f"  store {T} %sin{j}{tag}, {memory} {p}",
            f"  {p}.c = getelementptr {T}, {memory} {p}, i32 1",
            f"  store {T} %cos{j}{tag}, {memory} {p}.c",
        ]
