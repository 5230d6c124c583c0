"""x86-64: SSE2, AVX, AVX2 with FMA, AVX-512."""

from qddot.compiler.targets.architecture import Architecture, Processor

_V2 = ("SSE42", "POPCNT")
_V3 = ("AVX2", "FMA3", "F16C", "BMI", "BMI2")
_V4 = ("AVX512F", "AVX512CD", "AVX512VL", "AVX512BW", "AVX512DQ", "FMA3", "BMI2")

# The psABI's microarchitecture levels, and the first processors with AVX
LEVELS = {
    "x86-64": Processor(128, False, ()),
    "x86-64-v2": Processor(128, False, _V2),
    "sandybridge": Processor(256, False, (*_V2, "AVX")),
    "x86-64-v3": Processor(256, True, _V3),
    "x86-64-v4": Processor(512, True, _V4),
}

X86_64 = Architecture(
    name="x86-64",
    triple="x86_64-unknown-linux-gnu",
    baseline="SSE2",
    processors={
        **LEVELS,
        "nehalem": Processor(128, False, _V2),
        "haswell": Processor(256, True, _V3),
        "broadwell": Processor(256, True, _V3),
        "skylake": Processor(256, True, _V3),
        "alderlake": Processor(256, True, _V3),
        "znver1": Processor(256, True, _V3),
        "znver2": Processor(256, True, _V3),
        "znver3": Processor(256, True, _V3),
        "skylake-avx512": Processor(512, True, (*_V4, "AVX512_SKX")),
        "cascadelake": Processor(512, True, (*_V4, "AVX512_CLX")),
        "icelake-server": Processor(512, True, (*_V4, "AVX512_ICL")),
        "sapphirerapids": Processor(512, True, (*_V4, "AVX512_SPR")),
        "znver4": Processor(512, True, (*_V4, "AVX512_ICL")),
    },
    declarations="declare void @llvm.x86.sse.stmxcsr(ptr)\ndeclare void @llvm.x86.sse.ldmxcsr(ptr)\n"
    "declare void @llvm.x86.sse.sfence()\ndeclare void @llvm.x86.sse2.pause()\n",
    spin_hint="  call void @llvm.x86.sse2.pause()",
    streaming_fence=("  call void @llvm.x86.sse.sfence()",),
    save_float_status=(
        "  %flags = alloca i32",
        "  %own_flags = alloca i32",
        "  call void @llvm.x86.sse.stmxcsr(ptr %flags)",
        "  %flags.all = load i32, ptr %flags",
        "  %flags.none = and i32 %flags.all, -64",
        "  store i32 %flags.none, ptr %own_flags",
        "  call void @llvm.x86.sse.ldmxcsr(ptr %own_flags)",
    ),
    read_invalid=(
        "  call void @llvm.x86.sse.stmxcsr(ptr %own_flags)",
        "  %flags.now = load i32, ptr %own_flags",
        "  %invalid = trunc i32 %flags.now to i1",
    ),
    restore_float_status=("  call void @llvm.x86.sse.ldmxcsr(ptr %flags)",),
    keep_subnormals=(  # bits 15 and 6 flush results and operands
        "  %mode = alloca i32",
        "  %own.mode = alloca i32",
        "  call void @llvm.x86.sse.stmxcsr(ptr %mode)",
        "  %mode.all = load i32, ptr %mode",
        "  %mode.kept = and i32 %mode.all, -32833",
        "  store i32 %mode.kept, ptr %own.mode",
        "  call void @llvm.x86.sse.ldmxcsr(ptr %own.mode)",
    ),
    restore_subnormals=("  call void @llvm.x86.sse.ldmxcsr(ptr %mode)",),
)
