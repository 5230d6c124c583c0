"""Sines and cosines of a state's inputs before anything else, as LLVM text: a loop over groups of angles.

Those of a group are computed side by side, for the latency of one to be that of all, without a branch. Angles far from
zero are rare: a thread that has some computes all of its angles once more, one by one. There is no call in a kernel, as a
linker reserves the registers of what is called on top of those of the caller.
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


def angle_loop(name: str, arguments: Arguments, emitter: Emitter, source: str, warps: int = 1) -> list[str]:
    """Each thread computes those of its own state, from numbers at `source` into %sc.

    Several warps with the same states take groups in turn. The last angle may be taken several times.
    """
    count = len(arguments.angles)
    if not count:
        return []
    size = min(_GROUPS, key=lambda n: (-count % n, n))
    near = _AngleLoop(name, "near", arguments, emitter, source, range(size), warps)
    return [
        *near.lines(),
        "  br i1 %near.far, label %some.angles.far, label %all.angles, !prof !0",
        "some.angles.far:",
        *far_angle_loop(name, arguments, emitter, source),
        "  br label %all.angles",
        "all.angles:",
    ]


def far_angle_loop(name: str, arguments: Arguments, emitter: Emitter, source: str) -> list[str]:
    """The same for angles of any size, one by one."""
    return _AngleLoop(name, "any", arguments, emitter, source, range(1)).lines() if arguments.angles else []


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
    """A loop over groups of angles, "near" ones or of "any" size."""

    name: str
    kind: str
    arguments: Arguments
    emitter: Emitter
    source: str
    group: range
    warps: int = 1

    @property
    def count(self) -> int:
        return len(self.arguments.angles)

    def lines(self) -> list[str]:
        """The loop; of near angles, %near.far is whether some were not."""
        e, group, own = self.emitter, self.group, self.kind
        is_near, pair = own == "near", own
        lines = [
            f"  %{own}.first = mul i32 {'%warp' if self.warps > 1 else '0'}, {len(group)}",
            f"  br label %{own}.before",
            f"{own}.before:",
            f"  br label %{own}.angles",
            f"{own}.angles:",
            f"  %{own}.k = phi i32 [ %{own}.first, %{own}.before ], [ %{own}.next, %{own}.done ]",
        ]
        if is_near:
            lines.append(f"  %far.before = phi i1 [ false, %{own}.before ], [ %near.far, %{own}.done ]")
        lines += [line for j in group for line in self._angle(j)]
        lines += [line for j in group for line in e.near_sincos(f"{own}.pair{j}", f"%{own}.angle{j}")]
        if is_near:
            last = "%far.before"
            for j in group:
                lines.append(f"  %far.any{j} = or i1 {last}, %{own}.pair{j}.far")
                last = f"%far.any{j}"
            lines.append(f"  %near.far = or i1 {last}, false")
        else:
            pair = "mended"
            lines += [
                line for j in group for line in e.mended_sincos(f"mended.pair{j}", f"%{own}.angle{j}", f"{own}.pair{j}")
            ]
        return [
            *lines,
            *(line for j in group for line in self._stored(j, f"{pair}.pair{j}")),
            f"  br label %{own}.done",
            f"{own}.done:",
            f"  %{own}.next = add i32 %{own}.k, {len(group) * self.warps}",
            f"  %{own}.more = icmp ult i32 %{own}.next, {self.count}",
            f"  br i1 %{own}.more, label %{own}.angles, label %{own}.after",
            f"{own}.after:",
        ]

    def _angle(self, j: int) -> list[str]:
        """The j-th angle of the group, and which of all it is."""
        x, T, first = self.arguments.inputs[0], self.emitter.T, self.arguments.angles[0]
        k, which, angle = (f"%{self.kind}.{word}{j}" for word in ("k", "which", "angle"))
        lines = [
            f"  {k}.any = add i32 %{self.kind}.k, {j}",
            f"  {k} = call i32 @llvm.umin.i32(i32 {k}.any, i32 {self.count - 1})",
        ]
        if tuple(self.arguments.angles) == tuple(range(first, first + self.count)):
            lines.append(f"  {which} = add i32 {k}, {first}")
        else:
            lines += [
                f"  {which}.p = getelementptr i32, ptr addrspace(4) @{self.name}.angles, i32 {k}",
                f"  {which} = load i32, ptr addrspace(4) {which}.p",
            ]
        at = f"i32 {which}"
        if x.strided:
            lines += [f"  {which}.l = zext i32 {which} to i64", f"  {which}.o = mul i64 {which}.l, {x.strides[0]}"]
            at = f"i64 {which}.o"
        return [
            *lines,
            f"  {angle}.p = getelementptr {T}, {x.pointer} {self.source}, {at}",
            f"  {angle} = load {T}, {x.pointer} {angle}.p",
        ]

    def _stored(self, j: int, pair: str) -> list[str]:
        T, p, memory = self.emitter.T, f"%{self.kind}.to{j}", self.arguments.angle_pointer
        values = f"{self.kind}.sin{j}", f"{self.kind}.cos{j}"
        return [
            self.emitter.of_pair(values[0], pair, "sin"),
            self.emitter.of_pair(values[1], pair, "cos"),
            f"  {p}.k = shl i32 %{self.kind}.k{j}, 1",
            f"  {p} = getelementptr {T}, {memory} %sc, i32 {p}.k",
            f"  store {T} %{values[0]}, {memory} {p}",
            f"  {p}.c = getelementptr {T}, {memory} {p}, i32 1",
            f"  store {T} %{values[1]}, {memory} {p}.c",
        ]
