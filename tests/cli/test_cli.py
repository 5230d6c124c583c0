"""The command line as a person uses it: what it prints and what it returns."""

import io
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import qddot
from qddot import robots
from qddot.cli import count, demo
from qddot.cli.main import COMMANDS, main
from qddot.cli.terminal import spelled
from qddot.dynamics import catalogue, choose, trace

GOOD = """<robot name="two"><link name="base"/>
<link name="arm"><inertial><origin xyz="0.1 0 0"/><mass value="1.25"/>
<inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial></link>
<joint name="elbow" type="revolute"><parent link="base"/><child link="arm"/><axis xyz="0 1 0"/>
<limit lower="-1" upper="2" effort="1" velocity="1"/></joint></robot>"""


@pytest.fixture
def urdf(tmp_path):
    def write(text: str) -> str:
        path = tmp_path / "two.urdf"
        path.write_text(text)
        return str(path)

    return write


def test_info(urdf, capsys):
    assert main(["info", urdf(GOOD)]) == 0
    out = capsys.readouterr().out
    assert "two: 1 moving links, nq = 1, nv = 1" in out
    assert "elbow" in out
    assert "[-1, 2] rad" in out
    assert "1.25" in out


def test_info_as_json(urdf, capsys):
    assert main(["info", "--json", "--floating-base", urdf(GOOD)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["nv"] == 7
    assert [x["kind"] for x in report["links"]] == ["free", "revolute"]


def test_check_of_a_good_file(urdf, capsys):
    assert main(["check", urdf(GOOD)]) == 0
    out = capsys.readouterr().out
    assert "20 of 20 identities hold" in out
    assert "FAIL" not in out


def test_check_of_a_doubtful_file(urdf, capsys):
    assert main(["check", urdf(GOOD.replace('izz="1"', 'izz="9"'))]) == 1
    out = capsys.readouterr().out
    assert "two.urdf:2" in out
    assert "link 'arm'" in out
    assert "triangle inequality" in out
    assert "1 warnings" in out


def test_check_names_massless_joints(urdf, capsys):
    assert (
        main(
            [
                "check",
                "--json",
                urdf(GOOD.replace("1.25", "0").replace('="1" i', '="0" i').replace('izz="1"', 'izz="0"')),
            ]
        )
        == 1
    )
    report = json.loads(capsys.readouterr().out)
    assert report["massless_joints"] == ["elbow"]
    assert report["ok"] is False


@pytest.mark.parametrize("json_flag", [[], ["--json"]])
def test_unusable_files(urdf, capsys, json_flag):
    assert main(["check", urdf("<robot"), *json_flag]) == 2
    captured = capsys.readouterr()
    assert "two.urdf:1" in captured.err
    assert "Traceback" not in captured.err
    if json_flag:
        assert "two.urdf" in json.loads(captured.out)["error"]


def test_unknown_names(capsys):
    assert main(["info", "pumma560"]) == 2
    assert "did you mean 'puma560'" in capsys.readouterr().err


def test_demo(capsys, tmp_path):
    out = tmp_path / "out"
    assert main(["demo", "-o", str(out)]) == 0
    text = capsys.readouterr().out
    assert "160 of 160 identities of dynamics hold on the 11 embedded robots" in text
    for name in ("PUMA 560", "five-bar", "Mini Cheetah", "steps/s alone", f"qddot view {out / 'quadruped'}"):
        assert name in text
    arm, fivebar, quadruped = (qddot.load_trajectory(out / name) for name in ("arm", "fivebar", "quadruped"))
    assert len(arm) == 1001
    assert fivebar.energy_drift < 1e-5
    assert np.max(fivebar.constraint_drift) < 1e-12
    assert 0.2 < quadruped["base.z.q"][-1] < 0.3  # on its feet
    assert np.max(np.abs(quadruped.v[-1])) < 0.1
    T = quadruped.robot.forward_kinematics(quadruped.q)
    lifted = np.einsum("tkij,tkj->ti", T[..., :3, :3], quadruped["f_ext"][..., 3:])[:, 2]
    assert lifted[0] == 0.0
    assert lifted[-1] == pytest.approx(9.81 * quadruped.robot.mass, rel=0.05)  # the ground carries it


def test_demo_as_json(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "SCENES", (demo.fivebar,))
    monkeypatch.setattr(robots, "NAMES", ("pendulum", "fivebar"))
    for _ in range(2):  # also over its own files
        assert main(["demo", "--json", "-o", str(tmp_path / "out")]) == 0
    report = json.loads(capsys.readouterr().out.partition("}\n{")[2].join(("{", "")))
    assert report["ok"] is True
    assert set(report["identities"]) == set(robots.NAMES)
    (row,) = report["scenes"]
    assert row["batch_steps_a_second"] > row["steps_a_second"] > 1000
    assert row["times_eager"] > 100
    assert str(tmp_path / "out" / "fivebar") in report["saved"]
    (tmp_path / "file").write_text("mine")  # what cannot be saved does not stop it
    assert main(["demo", "-o", str(tmp_path / "file")]) == 0
    assert "is not saved" in capsys.readouterr().err


def test_bench(capsys):
    assert main(["bench", "--json", "double_pendulum"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {r["function"] for r in report["rows"]} >= {"inverse_dynamics", "forward_dynamics"}
    assert all(r["one_thread"] > 0 for r in report["rows"])
    assert main(["bench", "double_pendulum"]) == 0
    assert "states/s" in capsys.readouterr().out


def test_count(capsys):
    assert main(["count", "double_pendulum"]) == 0
    out = capsys.readouterr().out
    assert "double_pendulum: 2 moving links, nv = 2" in out
    for function in count.DEFAULT:
        own = re.split(r"\n(?:  \w|\*)", out.split(f"\n  {function} ")[1])[0]  # up to the next function, or the note
        assert own.count("*") == 1, function  # auto takes one of them
    for method in ("constraint_forces", "cyclic_reduction"):
        assert re.search(f"without {method}: link .bob1. has no mass", out)  # a point on a string: they are not for that


def test_count_as_json(capsys):
    assert main(["count", "--json", "scara", "--function", "mass_matrix", "--function", "forward_dynamics"]) == 0
    report = json.loads(capsys.readouterr().out)
    names = [(f, m) for f in ("mass_matrix", "forward_dynamics") for m in catalogue.FUNCTIONS[f].methods]
    assert [(r["function"], r["method"]) for r in report["rows"]] == names
    model = qddot.load("scara").model
    for row in report["rows"]:
        assert row["original"] == trace.traced(model, row["function"], row["method"], regroup=False).count()
        assert row["regrouped"] == choose.cheapest(model, row["function"], row["method"]).program.count()
        taken = choose.cheapest(model, row["function"], "auto").method
        assert row["auto"] == (row["method"] == taken)


def test_count_of_some(capsys):
    assert main(["count", "--json", "quadruped", "--function", "inverse_dynamics", "--method", "newton_euler"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["function"], row["method"], row["auto"]) == ("inverse_dynamics", "newton_euler", False)
    assert sum(row["regrouped"].values()) < sum(row["original"].values())
    assert main(["count", "--json", "puma560", "--no-passive-forces", "--function", "inverse_dynamics"]) == 0
    assert all(r["regrouped"]["sqrt"] == 0 for r in json.loads(capsys.readouterr().out)["rows"])  # friction has them
    assert main(["count", "fourbar", "--function", "mass_matrix"]) == 0
    assert "of the spanning tree" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["pumma560"], "did you mean 'puma560'"),
        (["pendulum", "--function", "mass_matrx"], "did you mean 'mass_matrix'"),
        (["pendulum", "--function", "pose"], "'pose' needs a frame"),
        (["pendulum", "--method", "abba"], "has no method 'abba': "),
        (["pendulum", "--function", "mass_matrix", "--method", "articulated_body"], "mass_matrix has no method"),
    ],
)
def test_count_of_what_is_not_there(capsys, words, text):
    assert main(["count", *words]) == 2
    captured = capsys.readouterr()
    assert text in captured.err
    assert captured.out == ""


def test_count_without_mass_or_freedom(urdf, capsys):
    file = urdf(GOOD.replace("1.25", "0").replace('="1" i', '="0" i').replace('izz="1"', 'izz="0"'))
    assert main(["count", file]) == 0
    out = capsys.readouterr().out
    assert "mass_matrix" in out
    assert "forward_dynamics" not in out
    assert main(["count", file, "--function", "forward_dynamics"]) == 2
    assert "joint 'elbow' moves nothing" in capsys.readouterr().err
    assert main(["count", urdf('<robot name="rock"><link name="base"/></robot>')]) == 2
    assert "has no degrees of freedom" in capsys.readouterr().err


def test_counting_needs_no_llvm():
    code = "import sys; from qddot.cli.main import main; main(['count', 'pendulum']); assert 'llvmlite' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)


def test_as_a_program():
    run = [sys.executable, "-m", "qddot"]
    assert subprocess.run([*run, "info", "scara"], capture_output=True, check=True).stdout
    assert subprocess.run([*run, "nonsense"], capture_output=True).returncode == 2
    assert b"0.1.0" in subprocess.run([*run, "--version"], capture_output=True, check=True).stdout


@pytest.mark.parametrize(
    "words",
    [
        ["export", "pendulum", "--function", "mass_matrix", "-o", "a.c", "--output", "b.c"],
        ["export", "pendulum", "--function", "mass_matrix", "--method", "renaud", "--method", "denoc"],
        ["export", "pendulum", "--function", "mass_matrix", "--combined", "a", "--combined", "b"],
        ["info", "pendulum", "--loop-tolerance", "1e-6", "--loop-tolerance", "1e-3"],
        ["view", "pendulum", "--html", "a.html", "--html", "b.html"],
    ],
    ids=lambda words: words[-2],
)
def test_options_of_one_value_are_given_once(words, capsys, tmp_path, monkeypatch):
    """The first value went lost in silence, and the exit code was 0."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert "it is given twice, and takes one value" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


# ---- terminals and pipes that are not UTF-8

HELP_OF = [["--help"], *([name, "--help"] for name in COMMANDS)]
PRINTING = [
    *(["info", name] for name in ("quadruped", "fivebar")),
    ["check", "double_pendulum"],
    ["count", "double_pendulum"],
    ["compare", "pendulum", "--function", "mass_matrix", "--no-times"],
    ["export", "pendulum", "--function", "mass_matrix", "-o", "out.c"],
    ["export", "pendulum", "--all", "control", "--layout", "cmake", "-o", "project"],
    ["convert", "scara", "out.json"],
    ["bench", "pendulum"],
    ["cache"],
    ["info", "no such robot\u4e2d"],
]
ENCODINGS = ("ascii", "cp1252", "cp437")


@pytest.mark.parametrize("encoding", [*ENCODINGS, "utf-8"])
def test_every_command_prints_in_every_encoding(encoding, tmp_path):
    """In a process of its own, into a pipe: what its streams are is decided when it starts."""
    code = (
        "import sys, json\nfrom qddot.cli.main import main\n"
        "for words in json.loads(sys.argv[1]):\n"
        "    try: code = main(words)\n"
        "    except SystemExit as end: code = end.code\n"
        "    assert code in (0, 2 * ('no such' in words[-1])), (words, code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps([*HELP_OF, *PRINTING])],
        env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"},
        cwd=tmp_path,
        capture_output=True,
    )
    text = done.stdout.decode(encoding) + done.stderr.decode(encoding)
    assert done.returncode == 0, text[-2000:]
    assert "Error" not in text
    squared = {"ascii": "m/s^2", "cp1252": "m/s²", "cp437": "m/s²", "utf-8": "m/s²"}
    assert squared[encoding] in text
    assert ("Σ JᵀIJ" if encoding == "utf-8" else "J^TIJ") in text
    assert ("中" if encoding == "utf-8" else r"\u4e2d") in text


def test_the_posix_locale(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "qddot", "check", "pendulum"],
        env={**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert b"mass matrix = sum J^TIJ" in done.stdout


def test_characters_are_spelled_out():
    text = "m/s², M⁻¹, Ṁ - 2C, q̈, µs, 1·x, ½ τᵀΛ, Körper, … 中"
    expected = r"m/s^2, M^-1, M_dot - 2C, q_ddot, us, 1*x, 1/2 tau^TLambda, Korper, ... \u4e2d"
    assert "".join(map(spelled, text)) == expected


def test_streams_are_as_before_afterwards(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    monkeypatch.setattr(sys, "stdout", stream)
    assert main(["info", "pendulum"]) == 0
    assert stream.errors == "strict"
    stream.flush()
    assert b"m/s^2" in stream.buffer.getvalue()
