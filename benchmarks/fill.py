"""What writing a batch of mass matrices costs by itself: `python -m benchmarks.fill`.

Five contestants run interleaved on one thread; medians in µs a state: filling the result with a constant by ordinary
stores, filling it with streaming stores, computing it with results that stay in the cache, computing the packed result, and
computing the whole. `bound` is the larger of the second and the fourth. Pinocchio writes every matrix into the same small
workspace.
"""

import ctypes
import statistics
import time

import numpy as np

import qddot
from benchmarks.cases import case
from qddot.compiler.runtime import llvm_compile
from qddot.compiler.targets.host import host

CASES = ("ur5", "panda7", "solo12-floating", "g1-fixed", "talos-fixed", "g1-floating", "talos-floating")
STATES, FEW, ROUNDS = 4096, 32, 31

_STREAM = """declare void @llvm.x86.sse.sfence()
define void @loop(ptr %to, i64 %bytes) {
entry:
  br label %line
line:
  %i = phi i64 [ 0, %entry ], [ %next, %line ]
  %p = getelementptr i8, ptr %to, i64 %i
  store <8 x double> splat (double 1.0), ptr %p, align 64, !nontemporal !0
  %next = add i64 %i, 64
  %more = icmp ult i64 %next, %bytes
  br i1 %more, label %line, label %done
done:
  call void @llvm.x86.sse.sfence()
  ret void
}
!0 = !{i32 1}
"""


def streaming():
    """A function that fills an array with ones by streaming stores, its beginning and its end left out."""
    code = llvm_compile.Code(llvm_compile.compile_object(_STREAM))
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t)(code.address)

    def fill(array, keep=code):
        first = -(-array.ctypes.data // 64) * 64
        function(first, (array.ctypes.data + array.nbytes - first) // 64 * 64)

    return fill


def main() -> None:
    qddot.set_num_threads(1)
    stream = streaming() if host().architecture.streaming_fence else None  # x86-64
    print("| robot (DoF) | megabytes | filling | with streaming stores | in the cache | packed | whole | whole / bound |")
    print("|---|---|---|---|---|---|---|---|")
    for name in CASES:
        c = case(name, 64)
        q = np.resize(c.q, (STATES, c.q.shape[1]))
        kernel, packed = c.robot.kernel("mass_matrix"), c.robot.kernel("mass_matrix", packed=True)
        out, few, entries = kernel(q), kernel(q[:FEW]), packed(q)
        contestants = {
            "fill": lambda out=out: out.fill(1.0),
            "stream": lambda out=out: stream(out) if stream else None,
            "cache": lambda k=kernel, q=q[:FEW], out=few: [k(q, out=out) for _ in range(STATES // FEW)],
            "packed": lambda k=packed, q=q, out=entries: k(q, out=out),
            "compute": lambda k=kernel, q=q, out=out: k(q, out=out),
        }
        times: dict[str, list[float]] = {label: [] for label in contestants}
        for _ in range(ROUNDS):
            for label, run in contestants.items():
                run()  # so that the caches hold what this contestant leaves there
                begin = time.perf_counter()
                run()
                times[label].append((time.perf_counter() - begin) / STATES * 1e6)
        median = {label: statistics.median(times[label]) for label in contestants}
        columns = " | ".join(f"{t:.3f}" for t in median.values())
        over = median["compute"] / max(median["stream"], median["packed"])
        print(f"| {name} ({c.robot.nv}) | {out.nbytes / 1e6:.1f} | {columns} | {over:.2f} |", flush=True)


if __name__ == "__main__":
    main()
