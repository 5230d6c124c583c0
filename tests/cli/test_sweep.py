"""`qddot sweep`: studies as files, run in one go or in parts, and told about."""

import json

import numpy as np
import pytest

import qddot
from qddot.cli.main import main
from qddot.errors import QddotError
from qddot.study.study_file import read

GOOD = """
robot = "double_pendulum"
dt = 1e-3
steps = 20
samples = 48
sampling = "latin"
seed = 3
directory = "runs"

[space]
q0 = { uniform = [[-1.0, -1.0], 1.0] }
"upper.mass" = { normal = [1.0, 0.1] }
"lower.mass" = { grid = [0.5, 1.0] }

[measures]
peak = "max:energy"
v = "v"

[options]
integrator = "semi_implicit_euler"
"""


@pytest.fixture
def study_file(tmp_path):
    names = qddot.load("double_pendulum").link_names
    path = tmp_path / "study.toml"
    path.write_text(GOOD.replace("upper", names[0]).replace("lower", names[1]), encoding="utf-8")
    return path


def test_a_study_from_begin_to_end(study_file, tmp_path, capsys):
    assert main(["sweep", str(study_file), "--engine", "serial"]) == 0
    assert "96 of 96 samples (100.0%)" in capsys.readouterr().out
    whole = read(study_file)
    assert len(whole.results) == 96
    assert main(["sweep", str(study_file)]) == 2
    assert "--resume" in capsys.readouterr().err
    assert main(["sweep", str(study_file), "--resume", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["done"] == 96

    folder = str(tmp_path / "parts")
    assert main(["sweep", str(study_file), folder, "--engine", "serial", "--part", "2/3"]) == 0
    assert "part      part-00002-of-00003: 32 of 32" in capsys.readouterr().out
    assert main(["sweep", "merge", folder]) == 1  # two parts are missing
    assert main(["sweep", "status", folder, "--json"]) == 1
    capsys.readouterr()
    for k in (1, 3):
        assert main(["sweep", str(study_file), folder, "--engine", "serial", "--part", f"{k}/3"]) == 0
    assert main(["sweep", "merge", folder]) == 0
    parts = read(study_file, directory=folder)
    assert np.array_equal(parts.results["peak"], whole.results["peak"])


def test_another_study_is_refused(study_file, capsys):
    assert main(["sweep", str(study_file), "--engine", "serial"]) == 0
    study_file.write_text(study_file.read_text().replace("dt = 1e-3", "dt = 2e-3"))
    assert main(["sweep", str(study_file), "--resume"]) == 2
    assert "dt was 0.001 and is 0.002" in capsys.readouterr().err


def test_code_and_other_folders_need_trust(study_file, tmp_path):
    (tmp_path / "mine_for_sweeps.py").write_text(
        "def path(t, q, v):\n    return v @ v\n\ndef twice(robot, values):\n    return {'y': 2 * values['x']}\n"
    )
    text = study_file.read_text()
    measured = text.replace('v = "v"', 'v = {function = "mine_for_sweeps:path", reduce = "integral"}')
    study_file.write_text(measured)
    with pytest.raises(QddotError, match="--trust"):
        read(study_file)
    assert read(study_file, trust=True).run("serial").results["v"].shape == (96,)
    study_file.write_text('function = "mine_for_sweeps:twice"\nsamples = 9\n[space]\nx = {uniform = [0, 1]}\n')
    found = read(study_file, directory=tmp_path / "f", trust=True).run("serial").results
    assert np.array_equal(found["y"], 2 * found["x"])
    np.save(tmp_path / "x.npy", np.arange(3.0))
    for text, says in (
        ('[space]\nx = {file = "../x.npy"}\n', "outside of its folder"),
        ('[space]\nx = {file = "y.npy"}\n', "cannot be read"),
        ("[space]\nx = {uniform = 1}\n", "takes two values"),
        ("[space]\nx = {unifrm = [0, 1]}\n", "did you mean 'uniform'"),
        ("[space]\nx = {uniform = [0, 1], grid = [1]}\n", "give one of"),
        ("[spaces]\n", "did you mean 'space'"),
        ("x", "no TOML"),
        ('robot = "pendulum"\n', r"\[space\]"),
        ('robot = "pendulum"\n[space]\nx = [1]\n', r"\[measures\]"),
    ):
        study_file.write_text(text)
        with pytest.raises(QddotError, match=says):
            read(study_file)
    study_file.write_text('function = "mine_for_sweeps:twice"\n[space]\nx = {file = "x.npy"}\n')
    assert len(read(study_file, directory=tmp_path / "g", trust=True)) == 3


def test_what_cannot_be_done(tmp_path, capsys):
    for command in (["sweep", "status"], ["sweep", "status", str(tmp_path)], ["sweep", "merge", str(tmp_path)]):
        assert main(command) == 2
    assert main(["sweep", str(tmp_path / "no.toml")]) == 2
    assert "cannot be read" in capsys.readouterr().err
