"""The command line as a person uses it: what it prints and what it returns."""

import json
import subprocess
import sys

import pytest

from qddot import robots
from qddot.cli import main

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
    assert "18 of 18 identities hold" in out
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


def test_demo(capsys):
    assert main(["demo"]) == 0
    out = capsys.readouterr().out
    assert "138 of 138 identities hold" in out
    for name in robots.NAMES:
        assert name in out


def test_demo_as_json(capsys):
    assert main(["demo", "--json", "--robot", "scara"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is True
    assert set(report["identities"]) == set(robots.NAMES)


def test_bench(capsys):
    assert main(["bench", "--json", "double_pendulum"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {r["function"] for r in report["rows"]} >= {"inverse_dynamics", "forward_dynamics"}
    assert all(r["one_thread"] > 0 for r in report["rows"])
    assert main(["bench", "double_pendulum"]) == 0
    assert "states/s" in capsys.readouterr().out


def test_as_a_program():
    run = [sys.executable, "-m", "qddot"]
    assert subprocess.run([*run, "info", "scara"], capture_output=True, check=True).stdout
    assert subprocess.run([*run, "nonsense"], capture_output=True).returncode == 2
    assert b"0.1.0" in subprocess.run([*run, "--version"], capture_output=True, check=True).stdout
