"""ARM Cortex-M with a floating-point unit (ARMv7E-M, Thumb-2, hard float): microcontrollers, no operating system."""

from qddot.compiler.targets.architecture import Architecture, Processor

THUMB = Architecture(
    name="thumb",
    triple="thumbv7em-none-unknown-eabihf",
    processors={
        "cortex-m4": Processor(0, True, (), doubles=False),
        "cortex-m7": Processor(0, True, ()),  # those with a unit for doubles; the others run code for a Cortex-M4
    },
    relocation="static",
)
