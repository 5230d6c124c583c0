"""Ways to compile and to load that the tests of the compiler go through: lanes below the machine's own, and both loaders.

A test whose kernels come from the fixture `way` holds for each of them. `QDDOT_TARGET_CPU` and `QDDOT_LOADER` restrict a
whole run of pytest, and `QDDOT_TEST_LANES` limits its lanes (tests/compiler/test_machines.py does so for the compiler).
"""

import dataclasses
import os
import sys
from contextlib import contextmanager

from qddot.compiler.targets import host
from qddot.compiler.targets.target import X86

# the loader that this machine takes by itself
OWN = "own" if sys.platform == "linux" and host.architecture() == X86 else "llvm"

# lanes of doubles (None: the machine's own), and who loads the code
WAYS = [(None, OWN), (1, OWN), (2, "llvm"), (4, OWN), (None, "llvm")]


@contextmanager
def restricted(lanes, loader=None):
    """Kernels made inside have so many lanes, or the machine's own, and come into memory by this loader."""
    before = {"native": host.native, "named": host.named}
    environment = os.environ.get("QDDOT_LOADER")

    def narrow(find):
        return lambda *name: dataclasses.replace(find(*name), vector_bits=min(64 * lanes, find(*name).vector_bits))

    try:
        for name, find in before.items():
            setattr(host, name, find if lanes is None else narrow(find))
        if loader is not None:
            os.environ["QDDOT_LOADER"] = loader
        yield
    finally:
        for name, find in before.items():
            setattr(host, name, find)
        if loader is not None:
            os.environ.pop("QDDOT_LOADER")
            if environment is not None:
                os.environ["QDDOT_LOADER"] = environment
