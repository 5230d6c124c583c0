"""ARM64: NEON, two doubles a register, fused multiply-adds."""

from qddot.compiler.targets.architecture import Architecture, Processor

_V8_2 = ("ASIMD", "ASIMDHP", "ASIMDDP")

AARCH64 = Architecture(
    name="arm64",
    triple="aarch64-unknown-linux-gnu",
    baseline="ASIMD",
    processors={
        "generic": Processor(128, True, ("ASIMD",)),
        "cortex-a53": Processor(128, True, ("ASIMD",)),
        "cortex-a72": Processor(128, True, ("ASIMD",)),
        "cortex-a76": Processor(128, True, _V8_2),
        "neoverse-n1": Processor(128, True, _V8_2),
        "apple-m1": Processor(128, True, (*_V8_2, "ASIMDFHM")),
    },
    spin_hint='  call void asm sideeffect "yield", ""()',
    save_float_status=(
        '  %flags = call i64 asm sideeffect "mrs $0, fpsr", "=r,~{memory}"()',
        '  call void asm sideeffect "msr fpsr, xzr", "~{memory}"()',
    ),
    read_invalid=(
        '  %flags.now = call i64 asm sideeffect "mrs $0, fpsr", "=r,~{memory}"()',
        "  %invalid = trunc i64 %flags.now to i1",
    ),
    restore_float_status=('  call void asm sideeffect "msr fpsr, $0", "r,~{memory}"(i64 %flags)',),
    keep_subnormals=(  # bit 24 flushes
        '  %mode = call i64 asm sideeffect "mrs $0, fpcr", "=r,~{memory}"()',
        "  %mode.kept = and i64 %mode, -16777217",
        '  call void asm sideeffect "msr fpcr, $0", "r,~{memory}"(i64 %mode.kept)',
    ),
    restore_subnormals=('  call void asm sideeffect "msr fpcr, $0", "r,~{memory}"(i64 %mode)',),
)
