"""Builds the C and C++ parts into shared libraries, outside the repository, and only if something has changed."""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
# Built for the processor that qddot compiles for: with QDDOT_TARGET_CPU neither side has wider registers than the other.
OPTIMISED = ("-O3", f"-march={os.environ.get('QDDOT_TARGET_CPU', 'native')}", "-DNDEBUG")
# Hidden symbols: two builds of one library and the Python modules of the peers live in one process.
SHARED = ("-shared", "-fPIC", "-fvisibility=hidden", "-Wl,--no-undefined")


class Unavailable(Exception):  # noqa: N818  a contestant that cannot take part is no error
    """Why a contestant cannot take part."""


class Library(NamedTuple):
    """A built library and the command that made it."""

    path: Path
    command: str

    def load(self) -> ctypes.CDLL:
        return ctypes.CDLL(str(self.path))


def default_build_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qddot-benchmarks"


def version_of(compiler: str) -> str:
    if shutil.which(compiler) is None:
        raise Unavailable(f"{compiler} is not installed")
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]


def cpu() -> dict[str, str]:
    """The processor's name and what it can do, where the system says so."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return {"model name": platform.processor() or platform.machine(), "flags": ""}
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


def build(source: str, compiler: str, flags: tuple[str, ...], build_dir: Path, extra: tuple[str, ...] = ()) -> Library:
    """Compiles a file of this folder; `extra` (libraries) follows the source in the command."""
    path = HERE / source
    before, after = [compiler, *flags, *OPTIMISED, *SHARED], list(extra)
    made_for = [version_of(compiler), cpu().get("model name", ""), cpu().get("flags", "")]
    key = hashlib.sha256("\0".join([path.read_text(), *before, *after, *made_for]).encode()).hexdigest()[:16]
    target = build_dir / f"{path.stem}-{compiler}-{key}.so"
    command = [*before, str(path), *after]
    if not target.exists():
        build_dir.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_suffix(f".{os.getpid()}")
        done = subprocess.run([*command, "-o", str(unfinished)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Unavailable(f"{compiler} could not build {source}:\n{done.stderr[:2000]}")
        unfinished.replace(target)
    return Library(target, " ".join(command))


def doubles(array) -> ctypes.c_void_p:
    """The address of a contiguous array of float64, which the caller keeps alive."""
    if array.dtype != float or not array.flags.c_contiguous:
        raise ValueError(f"a contiguous float64 array is needed, not {array.dtype} with strides {array.strides}")
    return ctypes.c_void_p(array.ctypes.data)
