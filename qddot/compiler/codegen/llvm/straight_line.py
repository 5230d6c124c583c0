"""A straight-line program as internal functions of LLVM text: `@core{name}(in, out, work, env)` and what it calls.

Inputs and results are columns of lanes in memory. Sines and cosines of inputs are computed in a loop, then the functions
run one after another; values that cross from one to another pass through scratch memory. Code for one lane and for many is
the same and gives the same bits: every operation is IEEE, and fused where the IR says so.
"""

from __future__ import annotations

from qddot.compiler.codegen.llvm import sincos
from qddot.compiler.codegen.llvm.core import Core
from qddot.compiler.codegen.llvm.emitter import Emitter
from qddot.compiler.codegen.llvm.function_body import FunctionBody
from qddot.compiler.codegen.llvm.memory_plan import CoreOptions, MemoryPlan, plan
from qddot.compiler.ir.program import Program


def straight_line_core(program: Program, emitter: Emitter, options: CoreOptions | None = None, tag: str = "") -> Core:
    """The core of a program; `tag` is part of the names of its functions."""
    options = options or CoreOptions()
    name, made = f"{emitter.lanes}{tag}", plan(program, emitter.lanes, options)
    bodies = [FunctionBody(emitter, made, k).text(f"chunk{name}_{k}") for k in range(len(made.functions))]
    functions = (*bodies, _driver(emitter, made, name))
    return Core(emitter, functions, made.scratch, made.outputs, made.sincos_lanes)


def _driver(emitter: Emitter, plan: MemoryPlan, name: str) -> str:
    """`@core{name}`: sines and cosines of inputs, then one function after another."""
    graph, V = plan.program.graph, emitter.V
    inputs = [graph.args[a][0] for a in plan.angles]
    inputs += inputs[-1:] * (plan.sincos_scratch // 2 - len(inputs))
    index = ", ".join(f"i64 {k}" for k in inputs)
    table = f"@angles{name} = internal constant [{len(inputs)} x i64] [{index}]\n" if inputs else ""
    lines = ["entry:", f"  %mem = getelementptr {V}, ptr %work, i64 {plan.sincos_scratch}"]
    if inputs:
        loop = _angle_by_angle if plan.sincos_lanes == 1 else _angles_in_lanes
        lines += ["  br label %angle", "angle:", "  %k = phi i64 [ 0, %entry ], [ %k1, %angle ]"]
        lines += loop(emitter, plan.sincos_lanes, name)
        lines += [
            f"  %k1 = add i64 %k, {plan.sincos_lanes}",
            f"  %more = icmp ult i64 %k1, {len(plan.angles)}",
            "  br i1 %more, label %angle, label %angles_done",
            "angles_done:",
        ]
    arguments = f"(ptr %in, ptr %work, ptr %mem, ptr %out, ptr %env{plan.arguments})"
    lines += [f"  call void @chunk{name}_{k}{arguments}" for k in range(len(plan.functions))]
    body = "\n".join(lines)
    parameters = f"ptr noalias %in, ptr noalias %out, ptr noalias %work, ptr %env{plan.arguments}"
    return f"{table}define internal void @core{name}({parameters}) {{\n{body}\n  ret void\n}}\n"


def _angle_by_angle(emitter: Emitter, _: int, name: str) -> list[str]:
    """Sine and cosine of the %k-th angle of a block."""
    V, align = emitter.V, emitter.align
    return [
        f"  %which.p = getelementptr i64, ptr @angles{name}, i64 %k",
        "  %which = load i64, ptr %which.p",
        f"  %x.p = getelementptr {V}, ptr %in, i64 %which",
        f"  %x = load {V}, ptr %x.p, align {align}",
        emitter.sincos("pair", "%x"),
        emitter.of_pair("s", "pair", "sin"),
        emitter.of_pair("c", "pair", "cos"),
        "  %k2 = shl i64 %k, 1",
        f"  %s.p = getelementptr {V}, ptr %work, i64 %k2",
        f"  store {V} %s, ptr %s.p, align {align}",
        "  %k3 = or i64 %k2, 1",
        f"  %c.p = getelementptr {V}, ptr %work, i64 %k3",
        f"  store {V} %c, ptr %c.p, align {align}",
    ]


def _angles_in_lanes(emitter: Emitter, n: int, name: str) -> list[str]:
    """Sines and cosines of n angles of one state, from the %k-th on, which are the lanes of one vector."""
    T, lines = emitter.T, list[str]()
    V = f"<{n} x {T}>"
    both = f"{{ {V}, {V} }}"
    for j in range(n):
        lines += [
            f"  %k.{j} = add i64 %k, {j}",
            f"  %which.p{j} = getelementptr i64, ptr @angles{name}, i64 %k.{j}",
            f"  %which{j} = load i64, ptr %which.p{j}",
            f"  %x.p{j} = getelementptr {T}, ptr %in, i64 %which{j}",
            f"  %x{j} = load {T}, ptr %x.p{j}",
            f"  %v{j} = insertelement {V} {f'%v{j - 1}' if j else 'poison'}, {T} %x{j}, i32 {j}",
        ]
    order = ", ".join(f"i32 {j // 2 + n * (j % 2)}" for j in range(2 * n))
    return [
        *lines,
        f"  %pair = call {both} @{sincos.function(T, n)}({V} %v{n - 1}, ptr %env)",
        f"  %s = extractvalue {both} %pair, 0",
        f"  %c = extractvalue {both} %pair, 1",
        "  %k2 = shl i64 %k, 1",
        f"  %sc.v = shufflevector {V} %s, {V} %c, <{2 * n} x i32> <{order}>",
        f"  %sc.q = getelementptr {T}, ptr %work, i64 %k2",
        f"  store <{2 * n} x {T}> %sc.v, ptr %sc.q, align {emitter.align}",
    ]
