"""The C compiler of the machine, or a cross compiler: what it says about stack and code size of a file."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from qddot.errors import InputError

STANDARD = ("-std=c99", "-O2")
_SECONDS = 120  # after which the compiler is stopped


class Measured(NamedTuple):
    """Bytes of stack by function, bytes of code and constants (None where there is no `size`), and who says so."""

    compiler: str
    flags: str
    stack: dict[str, int]
    code: int | None

    @property
    def stack_bytes(self) -> int:
        """Of the whole file: a function and what compilers make of its helper, which call one another in a row."""
        return sum(self.stack.values())


def find() -> str | None:
    """The command in the environment's CC, or the first C compiler there is."""
    return os.environ.get("CC") or next((name for name in ("gcc", "cc", "clang") if shutil.which(name)), None)


def measure(source: str, cc: str, flags: str) -> Measured:
    """Compiles a file and reads what was written beside the object. Any trouble is an InputError."""
    command, extra = _split(cc, "the C compiler"), _split(flags, "the compiler's flags")
    if not command or shutil.which(command[0]) is None:
        raise InputError(f"there is no C compiler {cc!r}; install it, or name another one")
    version = _run([*command, "--version"], Path.cwd()).split("\n")[0].strip()
    with tempfile.TemporaryDirectory(prefix="qddot-") as name:
        folder = Path(name)
        (folder / "it.c").write_text(source, encoding="ascii")
        _run([*command, *STANDARD, *extra, "-fstack-usage", "-c", "it.c", "-o", "it.o"], folder)
        try:
            stack = read_stack_usage((folder / "it.su").read_text(encoding="utf-8"))
        except OSError:
            raise InputError(f"the C compiler {cc!r} does not know -fstack-usage; GCC and Clang do") from None
        return Measured(version, shlex.join([*STANDARD, *extra]), stack, _code(command, folder))


def read_stack_usage(text: str) -> dict[str, int]:
    """Bytes by function from a `.su` file, functions in the order of the file."""
    rows = [line.split("\t") for line in text.splitlines()]
    order = sorted(rows, key=lambda row: int(row[0].split(":")[1]))
    return {row[0].split(":")[-1]: int(row[1]) for row in order}


def _code(command: Sequence[str], folder: Path) -> int | None:
    try:
        size = _run([*command, "-print-prog-name=size"], folder).strip()
        return int(_run([size, "it.o"], folder).splitlines()[1].split()[0])
    except (InputError, ValueError, IndexError):
        return None


def _split(text: str, what: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InputError(f"{what}, {text!r}, cannot be read: {error}") from None


def _run(command: Sequence[str], folder: Path) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, encoding="utf-8", errors="replace", timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise InputError(f"{command[0]!r} had not finished after {_SECONDS} s") from None
    except OSError as error:
        raise InputError(f"{command[0]!r} cannot be run: {error.strerror or error}") from None
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[:400]
        raise InputError(f"{shlex.join(command)} failed: {said}")
    return done.stdout
