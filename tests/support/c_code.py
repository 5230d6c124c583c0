"""C files compiled to shared libraries, and calls of their functions."""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

STRICT = [
    "-std=c99",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-pedantic",
    "-Wconversion",
    "-Wdouble-promotion",
    "-Wmissing-prototypes",
]
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
needs_compiler = pytest.mark.skipif(not COMPILERS, reason="there is no C compiler")
needs_gcc = pytest.mark.skipif("gcc" not in COMPILERS, reason="there is no gcc")


def run_compiler(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:2000]
    return done.stdout


def library(folder, sources, compiler=None, level="-O1"):
    """The C files as a shared library."""
    files = []
    for k, text in enumerate(sources):
        files.append(folder / f"f{k}.c")
        files[-1].write_text(text)
    out = folder / "library.so"
    run_compiler(compiler or COMPILERS[0], *STRICT, level, "-shared", "-fPIC", *map(str, files), "-o", str(out), "-lm")
    return ctypes.CDLL(str(out))


def call(lib, name, arrays, size, dtype):
    """A C function of one state."""
    out = np.full(size, 7.0, dtype)
    inputs = [np.ascontiguousarray(x, dtype) for x in arrays]
    getattr(lib, name)(*(ctypes.c_void_p(x.ctypes.data) for x in (*inputs, out)))
    return out
