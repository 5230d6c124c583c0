"""RISC-V with 64 bits, as Linux distributions have it (RV64GC, lp64d): fused multiply-adds, no vectors."""

from qddot.compiler.targets.architecture import Architecture, Processor

RISCV64 = Architecture(
    name="riscv64",
    triple="riscv64-unknown-linux-gnu",
    processors={"generic-rv64": Processor(0, True, ()), "sifive-u74": Processor(0, True, ())},
    features="+m,+a,+f,+d,+c",
    abi="lp64d",
)
