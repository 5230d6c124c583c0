"""Which test has which marker: by folder, file and fixture, here; by a decorator where a single test is of another kind.

quick    the inner loop, `pytest -m quick`: under a minute on two cores, with 5 examples a property
llvm     compiles kernels with LLVM, or loads them
oracle   compares with another engine: Pinocchio, MuJoCo
process  starts processes: children that are killed, compilers of C, commands, emulators
browser  draws in a headless Chromium
gpu      needs an NVIDIA card, and is skipped without one
slow     more than a minute, or the long version of another test; not run without `-m slow`
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

MARKERS = tuple(line.split()[0] for line in (__doc__ or "").splitlines()[2:] if line)

OF_FOLDER = {
    "compiler": "llvm",
    "simulation": "llvm",
    "tasks": "llvm",
    "torch": "llvm",
    "oracles": "oracle",
    "cli": "process",
}
OF_FILE = {
    "llvm": (
        *("comparison", "derivatives", "export_library", "force_derivatives", "hybrid_derivatives", "parameters"),
        *("named_forces", "rounding", "singular", "export_file"),
    ),
    "process": (
        *("c99", "c_function", "export_library", "cache", "cache_key", "cortex_m4", "forks", "machines", "recording"),
        *("mutants", "benchmarks", "benchmarks_gpu", "export_file", "export_project", "cuda_driver", "cuda_device"),
    ),
    "gpu": ("cuda_device", "cuda_kernels", "torch_cuda"),
}
# within folders that do
NO_LLVM = (
    *("expr", "languages", "cortex_m4", "trajectory", "recording_damage", "recording_identity"),
    *("cuda_arrays", "cuda_driver", "cuda_runtime"),
)

# Whole folders and files without what is marked otherwise, and one kernel a function.
QUICK_FOLDERS = ("spatial", "mechanism", "formats", "robot", "house")
QUICK_FILES = ("expr", "identities", "papers", "conventions")
QUICK_TESTS = ("test_every_function_is_compiled",)
NOT_QUICK = ("regroup", "fuzz_files", "strangers_files", "identity", "couplings", "mutants", "benchmarks", "benchmarks_gpu")
OTHERS = frozenset({"oracle", "process", "browser", "gpu", "slow"})


def of(path: PurePath, test: str, fixtures: tuple[str, ...], own: set[str]) -> Iterator[str]:
    """The markers of a test that has some of its own."""
    folder, file = path.parent.name, path.stem.removeprefix("test_")
    found = set()
    if folder in OF_FOLDER and not (OF_FOLDER[folder] == "llvm" and file in NO_LLVM):
        found.add(OF_FOLDER[folder])
    found |= {marker for marker, files in OF_FILE.items() if file in files}
    if "chromium" in fixtures:
        found.add("browser")
    known = found | own
    whole = (folder in QUICK_FOLDERS or file in QUICK_FILES) and file not in NOT_QUICK
    if test in QUICK_TESTS or (whole and not known & OTHERS):
        found.add("quick")
    yield from found
