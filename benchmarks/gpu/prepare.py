"""One piece of preparation, as a process of its own: `python -m benchmarks.gpu.prepare FOLDER JOB`, JSON in and out.

A job is {"do": "kernel", "case"}, which leaves PTX and, if there is a card, its machine code in the cache; {"do": "trace",
"case"}, which leaves the program; {"do": "variant", "case", "options"}, another layout of it, whose PTX goes to a file; or
{"do": "reference", "robot", "function"}, the results of this machine's processor. Those of frameworks are {"do":
"operation"} and {"do": "expected"}.
"""

import json
import pickle
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu import cases, frameworks
from benchmarks.gpu.cases import Case
from qddot.compiler.codegen.abi import grid
from qddot.compiler.runtime import ptx
from qddot.compiler.runtime.cuda import context
from qddot.compiler.runtime.cuda.grid import from_json
from qddot.compiler.runtime.cuda.kernel import code_of
from qddot.compiler.runtime.cuda.modules import GridCode
from qddot.compiler.targets import nvptx
from qddot.dynamics import pipeline
from qddot.dynamics.catalogue import input_shapes, lookup
from qddot.dynamics.request import Request


def kernel(folder: Path, case: Case, on_card: bool) -> dict[str, Any]:
    """The kernel as a user gets it."""
    robot = cases.load(case.robot, folder / "robots")
    made = robot.kernel(case.function, dtype=case.dtype, packed=case.packed, target="cuda")
    info = made.info
    facts = {"method": info.method, "instructions": info.instructions, "ops": info.ops, "ptx_bytes": info.code_bytes}
    facts |= {"compile_seconds": info.compile_seconds, "ptx_cached": info.cached, "numbers": int(np.prod(made.output))}
    return facts | (_assembled(code_of(made)) if on_card else {})


def _assembled(code: GridCode) -> dict[str, Any]:
    own, _ = context.find()
    code = code.suited(cases.LARGE_BATCH, own)
    with own:
        code.loaded(own)
    return {"assemble_seconds": code.seconds, "machine_code_cached": code.cached}


def variant(folder: Path, case: Case, options: dict[str, Any], on_card: bool) -> dict[str, Any]:
    """The kernel laid out in another way: PTX and the facts for a launch, in a file that `measure` reads; made once."""
    path = variant_path(folder, case, options)
    if not path.is_file():
        made = _laid_out(folder, case, options)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{time.monotonic_ns()}")
        temporary.write_text(json.dumps(made), encoding="utf-8")
        temporary.replace(path)
    made = json.loads(path.read_text(encoding="utf-8"))
    code = GridCode([made["ptx"]], from_json(made["grid"]), case.function)
    return made["facts"] | (_assembled(code) if on_card else {})


def _laid_out(folder: Path, case: Case, options: dict[str, Any]) -> dict[str, Any]:
    program, inputs, output = traced(folder, case)
    target, begin = nvptx.named(""), time.perf_counter()
    text, launch = grid.render(program, inputs, output, case.dtype, target, grid.GridOptions(**options))
    code = ptx.compile_ptx(text, target).decode()
    facts = {"compile_seconds": time.perf_counter() - begin, "instructions": len(program.body)}
    return {"ptx": code, "grid": launch.as_json(), "facts": facts | {"numbers": int(np.prod(output))}}


def variant_path(folder: Path, case: Case, options: dict[str, Any]) -> Path:
    name = "-".join(f"{k}{v}" for k, v in sorted(options.items()))
    return folder / "variants" / f"{case.key}.{name}.json"


def traced(folder: Path, case: Case) -> tuple[Any, list[tuple[int, ...]], tuple[int, ...]]:
    """The program of a case with the shapes of its inputs and its result; traced once in a run."""
    path = folder / "programs" / f"{case.key}.pickle"
    if path.is_file():
        return pickle.loads(path.read_bytes())  # our own, of this run
    model = cases.load(case.robot, folder / "robots").model
    function = lookup(case.function, "auto")[0]
    inputs, output = input_shapes(model, function, ()), function.output(model)
    request = Request(case.function, dtype=case.dtype, packed=case.packed, target="cuda")
    _, program = pipeline.program_for(model, request, output)
    if case.packed:
        program, layout = pipeline.packed(program, output)
        output = (layout.size,)
    found = program, list(inputs), output
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{time.monotonic_ns()}")
    temporary.write_bytes(pickle.dumps(found))
    temporary.replace(path)
    return found


def reference(folder: Path, robot_name: str, function: str) -> dict[str, Any]:
    """Results of this processor's kernels, in both types."""
    path = reference_path(folder, robot_name, function)
    if path.is_file():
        return {"cached": True}
    robot = cases.load(robot_name, folder / "robots")
    arguments = cases.states(robot, function)
    found = {
        dtype: robot.kernel(function, dtype=dtype, packed=cases.FUNCTIONS[function].packed)(
            *(x.astype(dtype) for x in arguments)
        ).reshape(len(arguments[0]), -1)
        for dtype in cases.DTYPES
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.stem}.{time.monotonic_ns()}.npz")
    np.savez(temporary, **found)
    temporary.replace(path)
    return {"cached": False}


def reference_path(folder: Path, robot: str, function: str) -> Path:
    return folder / "references" / f"{robot}.{function}.npz"


def done(folder: Path, job: dict[str, Any]) -> dict[str, Any]:
    """Does a job."""
    match job["do"]:
        case "kernel":
            return kernel(folder, Case(*job["case"]), job["on_card"])
        case "trace":
            program, _, output = traced(folder, Case(*job["case"]))
            return {"instructions": len(program.body), "numbers": int(np.prod(output))}
        case "variant":
            return variant(folder, Case(*job["case"]), job["options"], job["on_card"])
        case "reference":
            return reference(folder, job["robot"], job["function"])
        case "operation":
            return frameworks.compiled(folder, *job["row"], job["on_card"])
        case "expected":
            return frameworks.expected(folder, *job["row"])
    raise ValueError(f"job {job['do']!r} is not known")


def main() -> None:
    begin = time.perf_counter()
    try:
        found = done(Path(sys.argv[1]), json.loads(sys.argv[2]))
    except Exception as error:  # becomes a row of the report
        found = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(found | {"seconds": time.perf_counter() - begin}))


if __name__ == "__main__":
    main()
