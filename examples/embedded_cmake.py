"""The control functions of a SCARA arm as a C project, built with CMake and run: python examples/embedded_cmake.py"""

import shutil
import subprocess
import tempfile
from pathlib import Path

import qddot

robot = qddot.load("scara")
with tempfile.TemporaryDirectory() as name:
    folder = Path(name) / "arm"
    project = robot.export_project(folder, "control", frame="tip", free=["tool.mass"], dtype="float32", layout="cmake")
    for f in project.functions:
        stack = "" if f.stack_bytes is None else f", {f.stack_bytes} bytes of stack"
        print(f"{f.name}: {sum(f.operations.values())} operations{stack}")
    terms = project.functions[-1]
    print(f"computed apart, the results of {terms.name} take {sum(terms.apart.values())}")

    if shutil.which("cmake") is None:
        print("CMake is not installed: the project is written, and not built")
    else:
        build, check = str(Path(name) / "build"), {"check": True, "capture_output": True, "text": True}
        subprocess.run(["cmake", "-S", str(folder), "-B", build], **check)
        subprocess.run(["cmake", "--build", build, "--config", "Release"], **check)
        done = subprocess.run(["ctest", "--test-dir", build, "-C", "Release", "--verbose"], **check)
        print("\n".join(line for line in done.stdout.splitlines() if "gravity" in line or "ok" in line))
        assert "100% tests passed" in done.stdout  # the example found the results that qddot found
