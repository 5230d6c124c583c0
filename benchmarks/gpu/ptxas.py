"""What NVIDIA's assembler says of kernels, without a card: `python -m benchmarks.gpu.ptxas [--robots …] [--dtype float64]`.

Of each kernel as a user gets it: its operations, threads of a state, registers and stack of a thread, bytes of spilled
registers that its code stores, and the processor's time that the assembler takes for all entries.
"""

import argparse
import re
import resource
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from benchmarks.gpu import cases, report

COLUMNS = ("robot", "function", "operations", "threads a state", "registers", "stack B", "spilled B", "entries", "ptxas s")
_LIMIT = 600.0  # seconds


class Assembled(NamedTuple):
    """The entry point `rows` of a module, and what the assembler took for the whole."""

    registers: int
    stack_bytes: int  # of a thread
    spilled_bytes: int  # that its functions store
    seconds: float
    warnings: tuple[str, ...]


def assembled(code: str, arch: str) -> Assembled:
    """Assembles PTX; a ValueError says what the assembler has against it."""
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder, "code.ptx"), Path(folder, "code.cubin")
        path.write_text(code, encoding="utf-8")
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        command = ["ptxas", f"-arch={arch}", "-v", "-o", str(out), str(path)]
        made = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT)
        seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    if made.returncode:
        raise ValueError(made.stderr.strip())
    return said(made.stderr, seconds)


def said(text: str, seconds: float = 0.0) -> Assembled:
    """The same from the assembler's messages."""
    used = re.search(r"Compiling entry function 'rows'.*?Used (\d+) registers(.*)", text, re.DOTALL)
    stack = re.match(r"[^\n]*?(\d+) bytes cumulative stack", used[2]) if used else None
    spills = re.findall(r"Function properties for rows\S*\n[^\n]*?(\d+) bytes spill stores", text)
    warnings = tuple(line for line in text.splitlines() if "warning" in line.lower())
    registers = int(used[1]) if used else 0
    return Assembled(registers, int(stack[1]) if stack else 0, sum(map(int, spills)), seconds, warnings)


def row(folder: Path, case: cases.Case, arch: str) -> tuple[str, ...]:
    """Of the kernel of a case, for the table."""
    kernel = cases.load(case.robot, folder).kernel(case.function, dtype=case.dtype, packed=case.packed, target="cuda")
    code = kernel.code
    found = [assembled(text, arch) for text in code.texts]
    numbers = (
        kernel.info.instructions,
        code.grid.threads_per_state,
        max(x.registers for x in found),
        max(x.stack_bytes for x in found),
        sum(x.spilled_bytes for x in found),
        1 + code.grid.has_strided,
    )
    seconds = sum(x.seconds for x in found)
    return case.robot, cases.FUNCTIONS[case.function].title, *(f"{x:,}" for x in numbers), f"{seconds:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.ptxas", description=__doc__)
    parser.add_argument("--robots", default=",".join(cases.ROBOTS))
    parser.add_argument("--functions", default=",".join(cases.FUNCTIONS))
    parser.add_argument("--dtype", default="float32", choices=cases.DTYPES)
    parser.add_argument("--arch", default="sm_90", help="what the code is assembled for")
    parser.add_argument("--robots-dir", type=Path, help="of files of --save-robots")
    given = parser.parse_args()
    if shutil.which("ptxas") is None:
        parser.error("ptxas is not on the PATH; it comes with NVIDIA's toolkit")
    print(report.markdown(COLUMNS, []), flush=True)
    for robot in cases.available(given.robots.split(","), given.robots_dir):
        for function in given.functions.split(","):
            made = row(given.robots_dir or Path(), cases.Case(robot, function, given.dtype), given.arch)
            print("| " + " | ".join(made) + " |", flush=True)


if __name__ == "__main__":
    main()
