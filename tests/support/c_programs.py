"""C programs around exported functions, built for this machine or for another one and run there, or under emulation."""

import shutil
import subprocess
from typing import NamedTuple

import numpy as np
import pytest

from tests.support.c_code import run_compiler

STRICT = ["-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic"]
PROGRAM = """#include <stdio.h>
#include "{header}"

int main(void)
{{
    static {T} in[{size}], out[{count}];
    while (fread(in, sizeof in, 1, stdin) == 1) {{
        {name}({arguments});
        if (fwrite(out, sizeof out, 1, stdout) != 1)
            return 1;
    }}
    return 0;
}}
"""


class System(NamedTuple):
    """Where a program runs: its C compiler, and the command before the program's own."""

    compiler: str
    emulator: tuple[str, ...] = ()

    @property
    def missing(self) -> str:
        wanted = [x for x in (self.compiler, *self.emulator[:1]) if shutil.which(x) is None]
        return f"there is no {' and no '.join(wanted)}" if wanted else ""


SYSTEMS = {
    "native": System("cc"),
    "aarch64-linux-gnu": System("aarch64-linux-gnu-gcc", ("qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu")),
    "riscv64-linux-gnu": System("riscv64-linux-gnu-gcc", ("qemu-riscv64-static", "-L", "/usr/riscv64-linux-gnu")),
}

NATIVE = SYSTEMS["native"]
OTHERS = [
    pytest.param(target, marks=pytest.mark.skipif(bool(system.missing), reason=system.missing))
    for target, system in SYSTEMS.items()
    if target != "native"
]


def results(library, name, inputs, size, system=NATIVE):
    """A function of a library, in a program of its own: (count, size) numbers for inputs of (count, n) each.

    An object file is linked into the program, a shared library is beside it.
    """
    folder, dtype = library.parent, inputs[0].dtype
    ends = np.cumsum([0, *(x.shape[1] for x in inputs)])
    arguments = ", ".join([*(f"in + {at}" for at in ends[:-1]), "out"])
    source = PROGRAM.format(
        header=library.with_suffix(".h").name,
        T="double" if dtype == np.float64 else "float",
        size=ends[-1],
        count=size,
        name=name,
        arguments=arguments,
    )
    (folder / "main.c").write_text(source)
    shared = library.suffix == ".so"
    found = [f"-L{folder}", f"-l:{library.name}", "-Wl,-rpath,$ORIGIN"] if shared else [str(library)]
    program = folder / f"{library.name}.main"
    run_compiler(system.compiler, *STRICT, str(folder / "main.c"), *found, "-lm", "-o", str(program))
    states = np.hstack(inputs).tobytes()
    done = subprocess.run([*system.emulator, str(program)], input=states, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return np.frombuffer(done.stdout, dtype).reshape(len(inputs[0]), size)
