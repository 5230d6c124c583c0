"""A module of LLVM text around the functions of a kernel: the library that they call, declarations, metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from qddot.compiler.codegen.llvm import elementary, far_angles, sincos
from qddot.compiler.codegen.llvm.emitter import Emitter
from qddot.compiler.codegen.llvm.memory_plan import OutputColumns
from qddot.compiler.targets.target import Target


@dataclass(frozen=True)
class Core:
    """`@core{name}(in, out, work, env)` on columns of lanes, and the functions that it calls."""

    emitter: Emitter
    functions: tuple[str, ...]
    scratch: int  # numbers of a lane
    outputs: OutputColumns
    sincos_lanes: int = 1  # of the sine and cosine that it calls besides that of its own width
    grouped: Callable[[int], str] | None = None  # the text of `@core{name}x{n}`, which computes n blocks (block_groups)


_COMMON = """declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare i64 @llvm.smin.i64(i64, i64)
declare i32 @llvm.umin.i32(i32, i32)
declare <4 x double> @llvm.masked.load.v4f64.p0(ptr, i32, <4 x i1>, <4 x double>)
declare void @llvm.masked.store.v4f64.p0(<4 x double>, ptr, i32, <4 x i1>)
"""

_AVX512 = """declare <8 x double> @llvm.x86.avx512.vpermi2var.pd.512(<8 x double>, <8 x i64>, <8 x double>)
declare void @llvm.masked.store.v8f64.p0(<8 x double>, ptr, i32, <8 x i1>)
"""

# !0 unlikely branches, !1 invariant loads, !2 streaming stores
METADATA = '!0 = !{!"branch_weights", i32 1, i32 100000}\n!1 = !{}\n!2 = !{i32 1}'


def module(functions: Iterable[str], cores: Iterable[Core], target: Target) -> str:
    """The whole text: functions, and what the cores among them need."""
    emitters = {core.emitter.lanes: core.emitter for core in cores}
    return "\n".join([with_library(functions, emitters, {core.sincos_lanes for core in cores}, target), METADATA])


def with_library(functions: Iterable[str], emitters: dict[int, Emitter], widths: set[int], target: Target) -> str:
    """Functions with those that they call; `widths` are those of sines and cosines besides the emitters' own."""
    widths = {*emitters, *widths}
    text = "\n".join([*functions, *_library(emitters, widths, target)])
    return "\n".join([text, *elementary.definitions(text, sorted(emitters)), *_declarations(widths, target)])


def _library(emitters: dict[int, Emitter], widths: set[int], target: Target) -> list[str]:
    """Sine, cosine and arctan2 for all lane widths in use."""
    own, text = not target.has_c_library, list[str]()
    for e in emitters.values():
        text.append(elementary.arctan2(e.lanes, e.T) if own else sincos.arctan2(e.lanes, e.V, e.T))
    types = {e.T: "float32" if e.T == "float" else "float64" for e in emitters.values()}
    for T, dtype in sorted(types.items()):
        text += [sincos.define(T, width, target.fuses(dtype), own) for width in sorted(widths)]
        text += [sincos.define_near(T, width, target.fuses(dtype)) for width in sorted(widths) if own]
    return [*text, far_angles.define(target.fuses("float64"))] if own else text


def _declarations(widths: set[int], target: Target) -> list[str]:
    text = [_COMMON, target.architecture.declarations, _AVX512 if target.avx512 else ""]
    for width in sorted({1, *widths}):
        for T, short in (("double", "f64"), ("float", "f32")):
            V, suffix = (T, short) if width == 1 else (f"<{width} x {T}>", f"v{width}{short}")
            text.append(f"declare {V} @llvm.fma.{suffix}({V}, {V}, {V})")
            text += [f"declare {V} @llvm.{name}.{suffix}({V})" for name in ("sqrt", "fabs", "arithmetic.fence")]
    text += [f"declare i1 @llvm.vector.reduce.or.v{w}i1(<{w} x i1>)" for w in sorted({8, *widths} - {1})]
    return text
