"""Inverse kinematics in C: iterations have the bits of the compiled ones, and success is that of Python."""

import ctypes
import json
import re
import time

import numpy as np
import pytest

import qddot
from qddot import tasks
from qddot.cli.main import main
from qddot.compiler.targets.host import host
from qddot.dynamics.pipeline import kernel_of, unknowns
from qddot.tasks.inverse_kinematics import iteration_of
from tests.support.c_code import COMPILERS, STRICT, library, needs_compiler, run_compiler

ITERATIONS = 40
FMA = host().fma


def arm():
    """PUMA 560, and poses of its last link that can be reached."""
    robot = qddot.load("puma560")
    q, _ = robot.random_state(np.random.default_rng(1), 40)
    return robot, {"link6": robot.pose(q, "link6")}, robot.neutral()


def loops():
    """A five-bar linkage, and places of its last link that can be reached."""
    robot = qddot.load("fivebar")
    q = np.stack([robot.close_loops(robot.neutral() + 0.02 * k)[0] for k in range(24)])
    frame = robot.link_names[-1]
    return robot, {frame: robot.pose(q, frame)[:, :3, 3]}, robot.neutral() + 0.2


def floating():
    """A quadruped whose feet and centre of mass are to be somewhere: quaternions, and more errors than one task has."""
    robot = qddot.load("quadruped")
    q0 = robot.neutral()
    q0[8:19:3], q0[9:19:3] = 0.6, -1.2
    feet = [f for f in robot.frame_names if f.endswith("foot")]
    shifts = np.random.default_rng(2).uniform(-0.03, 0.03, (24, 3))
    wanted = [tasks.Position(f, robot.pose(q0, f)[:3, 3]) for f in feet]
    return robot, [*wanted, tasks.CenterOfMass(robot.center_of_mass(q0) + shifts)], q0


ALL = {"arm": arm, "loops": loops, "floating": floating}


def step_kernel(robot, targets, limits, dtype):
    """One iteration as a kernel: of the function that inverse kinematics compiles."""
    iteration, _, _ = iteration_of(robot.engine, targets, limits)
    sizes = [iteration.n_state, iteration.n_numbers]
    graph, (state, numbers) = unknowns(sizes)
    shapes = [(n,) for n in sizes]
    return iteration, kernel_of("ik", graph, iteration(state, numbers), ["s", "x"], shapes, (sizes[0],), dtype)


def pointer(x):
    return ctypes.c_void_p(x.ctypes.data)


def solver(lib, name, dtype):
    """The C function that solves, as a function of target and q: whether it succeeded, and q."""
    real, call = (ctypes.c_double if dtype == "float64" else ctypes.c_float), getattr(lib, name)
    call.argtypes, call.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, real], ctypes.c_int

    def solve(target, q, iterations, tolerance):
        target, q = np.array(target, dtype), np.array(q, dtype)
        return call(target.ctypes.data, q.ctypes.data, iterations, tolerance), q

    return solve


def within_half_a_turn(q, q0):
    return np.all(np.abs(q - q0) <= np.pi, axis=-1)


# ---- the same numbers as everywhere


@needs_compiler
@pytest.mark.parametrize("limits", [True, False])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ALL)
def test_every_iteration_has_the_kernels_bits(name, dtype, limits, tmp_path):
    robot, targets, q0 = ALL[name]()
    made = robot.export_inverse_kinematics(targets, dtype=dtype, limits=limits, fma=FMA, cc="")
    lib = library(tmp_path, [made.source])
    iteration, kernel = step_kernel(robot, targets, limits, dtype)
    tolerance = 1e-8 if dtype == "float64" else 1e-5
    squares, step = np.full(2, tolerance**2, dtype), getattr(lib, f"{made.name}_step")
    moved = 0
    for target in np.ascontiguousarray(made.target, dtype):
        state, numbers = iteration.start(q0[None])[0].astype(dtype), np.concatenate([target, squares])
        found = state.copy()
        for _ in range(ITERATIONS):
            expected = kernel(state, numbers)
            step(pointer(found), pointer(target), pointer(squares), pointer(found))  # in place
            assert found.tobytes() == expected.tobytes()
            moved += not np.array_equal(expected[: robot.nq], state[: robot.nq])
            state = expected
    assert moved >= 2 * len(made.target)


@needs_compiler
@pytest.mark.parametrize("limits", [True, False])
@pytest.mark.parametrize("name", ALL)
def test_it_succeeds_where_python_does(name, limits, tmp_path):
    robot, targets, q0 = ALL[name]()
    made = robot.export_inverse_kinematics(targets, limits=limits, fma=FMA, cc="")
    solve = solver(library(tmp_path, [made.source]), made.name, "float64")
    expected = robot.inverse_kinematics(targets, q0, limits=limits, restarts=0, iterations=ITERATIONS, tolerance=1e-8)
    found = [solve(target, q0, ITERATIONS, 1e-8) for target in made.target]
    success, q = np.array([x for x, _ in found]), np.stack([x for _, x in found])
    assert np.array_equal(success, expected.success)
    assert np.count_nonzero(success) > 5
    near = within_half_a_turn(q, q0)  # Python brings angles there
    assert np.count_nonzero(near) > 5
    assert q[near].tobytes() == expected.q[near].tobytes()


@needs_compiler
def test_a_start_beyond_the_limits_is_clipped(tmp_path):
    robot, targets, _ = arm()
    made = robot.export_inverse_kinematics(targets, fma=FMA, cc="")
    solve = solver(library(tmp_path, [made.source]), made.name, "float64")
    for q0 in (np.full(6, 50.0), np.full(6, -50.0)):
        start = np.clip(q0, robot.lower, robot.upper)
        for target in made.target[:8]:
            found, expected = solve(target, q0, ITERATIONS, 1e-8), solve(target, start, ITERATIONS, 1e-8)
            assert found[0] == expected[0]
            assert found[1].tobytes() == expected[1].tobytes()
            assert np.all((found[1] >= robot.lower) & (found[1] <= robot.upper))


@needs_compiler
def test_single_precision_reaches_what_it_can_tell_apart(tmp_path):
    robot, targets, q0 = arm()
    made = robot.export_inverse_kinematics(targets, dtype=np.float32, fma=FMA, cc="")
    solve = solver(library(tmp_path, [made.source]), made.name, "float32")
    found = [solve(target, q0, 100, 1e-5) for target in made.target]
    expected = robot.inverse_kinematics(targets, q0, restarts=0)
    success = np.array([x for x, _ in found], bool)
    assert np.count_nonzero(success) >= 0.9 * np.count_nonzero(expected.success) > 10
    off = robot.pose(np.stack([q for _, q in found]).astype(float), "link6") - targets["link6"]
    assert np.max(np.abs(off[success])) < 2e-5  # the tolerance, and rounding of poses in single precision


@needs_compiler
def test_what_is_not_finite_does_not_succeed(tmp_path):
    robot, targets, q0 = arm()
    made = robot.export_inverse_kinematics(targets, fma=FMA, cc="")
    solve = solver(library(tmp_path, [made.source]), made.name, "float64")
    k = int(np.flatnonzero(robot.inverse_kinematics(targets, q0, restarts=0).success)[0])
    good = made.target[k]
    assert solve(good, q0, 100, 1e-8)[0] == 1
    for bad in (np.nan, np.inf, -np.inf):
        for i in range(len(good)):
            success, q = solve(np.where(np.arange(len(good)) == i, bad, good), q0, 100, 1e-8)
            assert success == 0
            assert np.array_equal(q, q0)
        for i in range(robot.nq):
            start = np.where(np.arange(robot.nq) == i, bad, q0)
            success, q = solve(good, start, 100, 1e-8)
            if np.isnan(bad):
                assert success == 0
                assert np.array_equal(q, start, equal_nan=True)
            else:  # it is clipped
                assert np.isfinite(q).all()
        assert solve(good, q0, 100, bad)[0] == (bad == np.inf)
    for iterations, tolerance in ((0, 1e-8), (-1, 1e-8), (100, 0.0), (100, -1e-8), (1, 1e-8)):
        assert solve(good, q0, iterations, tolerance)[0] == 0


@needs_compiler
def test_it_stops_where_targets_are_reached(tmp_path):
    robot, targets, q0 = arm()
    made = robot.export_inverse_kinematics(targets, fma=FMA, cc="")
    solve = solver(library(tmp_path, [made.source]), made.name, "float64")
    k = int(np.flatnonzero(robot.inverse_kinematics(targets, q0, restarts=0).success)[0])
    begin = time.process_time()
    assert solve(made.target[k], q0, 5_000_000, 1e-8)[0] == 1
    assert time.process_time() - begin < 0.5  # all of them take seconds


# ---- the files


def flat(text):
    return " ".join(re.sub(r"^ \* ", "", text, flags=re.M).split())


def test_the_header_says_what_the_arrays_hold():
    robot, targets, _ = arm()
    made = robot.export_inverse_kinematics(targets, cc="", name="arm_ik", dtype="float32")
    text = flat(made.header)
    assert made.name == "arm_ik"
    assert made.target.shape == (40, 14)
    assert "state[18] [0 to 5] the best q; [6 to 11] the step" in text
    assert "[0 to 2] where the origin of 'link6' is to be, m; [3] its weight; [4 to 12] the axes of 'link6'" in text
    assert "INFINITY in [12], 1 in [13], and 0 elsewhere" in text
    assert "int arm_ik(const float target[14], float q[6], int iterations, float tolerance);" in text
    assert "operations " + ", ".join(f"{n} {kind}" for kind, n in made.operations.items()) in text
    assert "limits are kept" in text
    assert "stack not measured" in text
    assert "limits of joints are not kept" in flat(robot.export_inverse_kinematics(targets, cc="", limits=False).header)


def test_layouts_count_the_numbers_of_every_task():
    robot = qddot.load("fivebar")
    frame, x = robot.link_names[-1], np.zeros(3)
    every = [
        tasks.Pose(frame, np.eye(4)),
        tasks.Position(frame, x),
        tasks.Orientation(frame, np.eye(3)),
        tasks.LookAt(frame, x + 1.0),
        tasks.CenterOfMass(x),
        tasks.Posture(robot.neutral()),
        tasks.LoopClosure(),
    ]
    assert {type(task) for task in every} == {x for x in vars(tasks).values() if _is_kind(x)}
    for task in every:
        assert sum(n for n, _ in task.layout(robot.model)) == task.numbers(robot.model).shape[-1]


def _is_kind(x):
    return isinstance(x, type) and issubclass(x, tasks.Task) and x is not tasks.Task


@needs_compiler
def test_stack_and_code_are_measured():
    made = qddot.load("fivebar").export_inverse_kinematics(tasks.CenterOfMass(np.zeros(3)), cc=COMPILERS[0])
    text = flat(made.header)
    assert f"stack {made.stack_bytes} bytes with those of fivebar_ik_step" in text
    assert made.code_bytes > 1000
    (own,) = re.findall(r"stack (\d+) bytes, without libm's", text)
    assert 100 < int(own) < made.stack_bytes


@needs_compiler
@pytest.mark.parametrize("options", [{}, {"dtype": "float32"}, {"sincos": "libm", "fma": False}])
def test_files_compile_as_c_and_with_their_header(options, tmp_path):
    robot, targets, _ = arm()
    robot.export_inverse_kinematics(targets, tmp_path / "arm.c", cc="", **options)
    (tmp_path / "main.c").write_text('#include "arm.h"\n#include "arm.c"\nint main(void) { return 0; }\n')
    run_compiler(COMPILERS[0], *STRICT, str(tmp_path / "main.c"), "-o", str(tmp_path / "main"), "-lm")


# ---- the command


def test_the_command_writes_the_same(tmp_path, capsys):
    path = tmp_path / "ik.c"
    assert main(["export", "puma560", "--inverse-kinematics", "link6", "--no-limits", "--cc", "", "-o", str(path)]) == 0
    expected = qddot.load("puma560").export_inverse_kinematics({"link6": np.eye(4)}, limits=False, cc="")
    assert path.read_text() == expected.source
    assert path.with_suffix(".h").read_text() == expected.header
    assert f"puma560_ik: {expected.operations['mul']} mul" in capsys.readouterr().err
    assert main(["export", "puma560", "--inverse-kinematics", "link6", "--cc", ""]) == 0
    assert "int puma560_ik(const double target[14]" in capsys.readouterr().out
    assert main(["export", "puma560", "--inverse-kinematics", "link6", "--cc", "", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["target"] == [0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1, 1]


@pytest.mark.parametrize(
    "more", [["--function", "mass_matrix"], ["--library", "x.so"], ["--free", "link3.mass"], ["--inline"]]
)
def test_the_command_refuses_what_has_no_effect(more, capsys):
    assert main(["export", "puma560", "--inverse-kinematics", "link6", *more]) != 0
    assert f"leave out {more[0]}" in capsys.readouterr().err
    assert main(["export", "puma560", "--function", "mass_matrix", "--no-limits"]) != 0
    assert "--no-limits is for --inverse-kinematics" in capsys.readouterr().err


# ---- errors


WRONG = {
    "no target": (lambda r: r.export_inverse_kinematics({}), "needs a target"),
    "frame": (lambda r: r.export_inverse_kinematics({"link9": np.eye(4)}), "link9"),
    "option": (lambda r: r.export_inverse_kinematics({"link6": np.eye(4)}, restarts=3), "'restarts'; it takes name, dtype"),
    "dtype": (lambda r: r.export_inverse_kinematics({"link6": np.eye(4)}, dtype="int8"), "int8"),
    "name": (lambda r: r.export_inverse_kinematics({"link6": np.eye(4)}, name="for"), "name='for' cannot be"),
    "sincos": (lambda r: r.export_inverse_kinematics({"link6": np.eye(4)}, sincos="x"), "sincos='x' is not known"),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors(case):
    call, text = WRONG[case]
    with pytest.raises((qddot.InputError, qddot.UnknownNameError, TypeError), match=re.escape(text)):
        call(qddot.load("puma560"))
