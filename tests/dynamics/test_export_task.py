"""Functions of a task, for chosen rows of a frame's twist, in exported code: C files, libraries and the command."""

import ctypes
import sys

import numpy as np
import pytest

import qddot
from qddot.cli.main import main
from qddot.compiler.targets.host import host
from qddot.dynamics.task_functions import TASK_FUNCTIONS
from tests.support.c_code import call, library, needs_compiler

LINEAR = (3, 4, 5)


def states(robot, count):
    rng = np.random.default_rng(5)
    pairs = [robot.random_state(rng) for _ in range(count)]
    return np.stack([q for q, _ in pairs]), np.stack([v for _, v in pairs])


def flat(comment):
    """A comment without its line breaks."""
    return " ".join(comment.replace("*", " ").split())


@needs_compiler
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("rows", [tuple(range(6)), LINEAR, (0,)])
def test_c_has_the_kernels_bits(rows, dtype, tmp_path):
    robot = qddot.load("puma560")
    q, v = states(robot, 5)
    options = {"frame": "link6", "rows": rows, "dtype": dtype}
    made = [robot.export_c(name, **options, name=name, cc="", fma=host().fma) for name in TASK_FUNCTIONS]
    lib = library(tmp_path, [x.source for x in made])
    for name, source in zip(TASK_FUNCTIONS, made, strict=True):
        kernel = robot.kernel(name, **options)
        assert source.method == kernel.info.method
        for k in range(5):
            arrays = [x[k].astype(dtype) for x in (q, v)[: len(TASK_FUNCTIONS[name].inputs)]]
            expected = kernel(*arrays)
            assert np.isfinite(expected).all()
            assert call(lib, name, arrays, expected.size, dtype).tobytes() == expected.tobytes()


@needs_compiler
def test_c_gives_nan_where_rows_depend(tmp_path):
    robot = qddot.load("puma560")
    q, _ = states(robot, 1)
    q[0, 4] = 0.0
    lib = library(tmp_path, [robot.export_c("operational_space_inertia", frame="link6", name="f", cc="").source])
    assert np.isnan(call(lib, "f", [q[0]], 36, "float64")).all()


@needs_compiler
def test_several_in_one_file_and_together(tmp_path):
    """Two choices of rows, and one C function that gives Λ, μ, J̄ and N at once, for fewer operations."""
    robot = qddot.load("puma560")
    q = states(robot, 1)[0][0]
    own = {"frame": "link6", "rows": LINEAR}
    wanted = [("null_space_projector", own), ("null_space_projector", {"frame": "link6", "rows": [0], "name": "turned"})]
    found = robot.export_c([*wanted, ("task", [(name, own) for name in TASK_FUNCTIONS])], cc="", fma=host().fma)
    assert [f.name for f in found.functions] == ["puma560_null_space_projector_link6", "turned", "puma560_task"]
    assert "rows 3, 4, 5" in flat(found.header)
    lib = library(tmp_path, [found.source])
    assert call(lib, "turned", [q], 36, "float64").tobytes() == robot.null_space_projector(q, "link6", [0]).tobytes()
    together = found.functions[-1]
    assert sum(together.operations.values()) < 0.5 * sum(together.apart.values())
    with pytest.raises(qddot.InputError, match="give one of them another name="):
        robot.export_c([wanted[0], ("null_space_projector", {"frame": "link6", "rows": [0]})], cc="")


def test_heads_say_what_is_computed():
    robot = qddot.load("puma560")
    source = robot.export_c("operational_space_inertia", frame="link6", rows=LINEAR, cc="").source
    for text in ("of 'link6' rows 3, 4, 5 by", "Lambda[9]", "3 x 3 row by row", "NaN where these depend on each other"):
        assert text in source
    every = robot.export_c("operational_space_bias_force", frame="link6", cc="").source
    assert "of 'link6' by" in every
    assert "mu[6]" in every


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="shared libraries are for Linux")
def test_libraries_have_the_kernels_bits(tmp_path):
    robot, file = qddot.load("puma560"), tmp_path / "task.so"
    q, v = (x[0] for x in states(robot, 1))
    wanted = [(name, {"frame": "link6", "rows": LINEAR, "name": name}) for name in TASK_FUNCTIONS]
    made = robot.export_library(file, wanted)
    assert "J_bar[18]" in made.header
    lib = ctypes.CDLL(str(file))
    for name, function in TASK_FUNCTIONS.items():
        arrays = (q, v)[: len(function.inputs)]
        expected = robot.kernel(name, frame="link6", rows=LINEAR)(*arrays)
        assert call(lib, name, arrays, expected.size, "float64").tobytes() == expected.tobytes()


def test_the_command_takes_rows(capsys, tmp_path):
    task = ["export", "puma560", "--function", "operational_space_bias_force", "--frame", "link6", "--cc", ""]
    assert main([*task, "--rows", "3", "4", "5"]) == 0
    assert "mu[3]" in capsys.readouterr().out
    more = ["--function", "mass_matrix", "--function", "null_space_projector", "-o", str(tmp_path / "several.c")]
    assert main([*task, *more, "--rows", "0"]) == 0
    assert flat((tmp_path / "several.h").read_text()).count("of 'link6' rows 0 by") == 2
    assert "mu[1]" in (tmp_path / "several.h").read_text()
    options = ["--library", str(tmp_path / "f.o"), "--rows", "5", "--frame", "link6", "--function", "mass_matrix"]
    assert main(["export", "puma560", *options, "--function", "operational_space_bias_force"]) == 0
    assert "mu[1]" in (tmp_path / "f.h").read_text()
    assert (
        main(["export", "puma560", "--function", "mass_matrix", "--function", "bias_force", "--rows", "0", "--cc", ""]) != 0
    )
    assert "none of the functions takes rows=" in capsys.readouterr().err


def test_rows_of_all_functions_of_a_file():
    robot = qddot.load("puma560")
    made = robot.export_c(
        ["jacobian", "operational_space_bias_force", ("null_space_projector", {"rows": [0]})],
        frame="link6",
        rows=np.array(LINEAR),
        cc="",
    )
    assert "of 'link6' rows 3, 4, 5 by" in flat(made.header)
    assert "of 'link6' rows 0 by" in flat(made.header)
