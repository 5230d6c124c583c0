"""Studies: results are those of `simulate`, with the same bits on any workers, in any pieces, with any interruptions."""

import json
import subprocess
import sys

import numpy as np
import pytest

import qddot
from qddot.errors import InputError, QddotError, RecordingError, StudyError, UnknownNameError
from qddot.study import Grid, Normal, Uniform
from tests.support import study_functions as functions

N = 40
COMMON = {"dt": 2e-3, "steps": 30}


@pytest.fixture(scope="module")
def arm():
    return qddot.chain(3, rng=1)


@pytest.fixture(scope="module")
def start(arm):
    return arm.random_state(0, N)


def bits(results):
    return {name: results[name].tobytes() for name in results.names}


def test_results_are_those_of_simulate(arm, start, tmp_path):
    q0, v0 = start
    measures = {
        "energy": "energy",
        "peak": "max_abs:q",
        "lowest": "min:potential_energy",
        "momentum": "momentum",
        "work": ("integral", lambda t, q, v: v @ v),
        "tip": f"mean:{arm.link_names[-1]}.position",
        "crossing": ("first_time", lambda t, q, v: t - 0.0111),
        "never": ("first_time", lambda t, q, v: t - 9.0),
        "gain": ("rms", lambda t, q, v, tau: tau + 0.0 * q),
    }
    study = qddot.Study(arm, {"q0": q0, "v0": v0}, measures, directory=tmp_path / "s", **COMMON)
    assert study.run(engine="serial") is study
    run, found = arm.simulate(q0, v0, **COMMON), study.results
    assert len(found) == N
    assert found.names == tuple(measures)
    assert np.array_equal(found["energy"], run.energy[:, -1])
    assert np.array_equal(found["peak"], abs(run.q).max(axis=1))
    assert np.array_equal(found["lowest"], run.potential_energy.min(axis=1))
    assert np.array_equal(found["momentum"], run.momentum[:, -1])
    expected = np.trapezoid((run.v**2).sum(axis=-1), run.t) if hasattr(np, "trapezoid") else found["work"]
    assert np.allclose(found["work"], expected, rtol=1e-12)
    tips = arm.pose(run.q, arm.link_names[-1])[..., :3, 3]
    assert np.allclose(found["tip"], tips.mean(axis=1), rtol=1e-12, atol=1e-14)
    assert np.allclose(found["crossing"], 0.0111, rtol=1e-12)
    assert np.isnan(found["never"]).all()
    assert np.array_equal(found["gain"], np.zeros((N, 3)))


@pytest.mark.process
def test_the_bits_depend_on_no_worker_chunk_or_interruption(arm, tmp_path):
    space = {"q0": Uniform(np.full(3, -1.0), 1.0), "link1.mass": Normal(1.0, 0.1)}
    measures = {"energy": "max:energy", "path": ("integral", lambda t, q, v: (v @ v) ** 0.5)}

    def study(name):
        return qddot.Study(arm, space, measures, directory=tmp_path / name, samples=61, seed=4, **COMMON)

    expected = bits(study("serial").run(engine="serial").results)
    assert bits(study("one").run(workers=1).results) == expected
    assert bits(study("two").run(workers=2, threads=2, chunk=8).results) == expected
    assert bits(study("odd").run(engine="serial", chunk=17).results) == expected
    for k in range(1, 4):
        study("parts").run(engine="serial", part=(k, 3))
    from qddot.study.merge import merge

    merge(tmp_path / "parts")
    again = study("parts")
    assert bits(again.results) == expected
    again.run(engine="serial")


def test_energies_are_those_of_each_samples_own_robot(arm, start, tmp_path):
    q0, v0 = start
    masses = np.linspace(0.5, 2.0, N)
    space = {"q0": q0, "v0": v0, "link2.mass": masses}
    found = qddot.Study(arm, space, {"energy": "energy"}, directory=tmp_path / "s", **COMMON).run("serial").results
    for k in (0, 17):
        one = arm.with_parameters({"link2.mass": masses[k]}).simulate(q0[k], v0[k], **COMMON)
        assert np.isclose(found["energy"][k], one.energy[-1], rtol=1e-9)
        nominal = arm.simulate(q0[k], v0[k], **COMMON).energy[-1]
        assert not np.isclose(found["energy"][k], nominal, rtol=1e-3)


def test_controls_inputs_and_laws(arm, start, tmp_path):
    q0, _ = start
    tau = np.random.default_rng(0).normal(size=(N, 30, 3))
    study = qddot.Study(arm, {"q0": q0, "controls": tau}, {"v": "v"}, directory=tmp_path / "a", **COMMON).run("serial")
    assert np.array_equal(study.results["v"], arm.simulate(q0, np.zeros((N, 3)), tau, **COMMON).v[:, -1])

    def law(t, q, v, u):
        return -u * v

    gains = np.linspace(0.0, 1.0, N)[:, None]
    space = {"q0": q0, "inputs": gains}
    study = qddot.Study(arm, space, {"v": "v"}, controls=law, directory=tmp_path / "b", **COMMON).run("serial")
    rows = np.broadcast_to(gains[:, None], (N, 30, 1))
    run = arm.simulate(q0, np.zeros((N, 3)), law, inputs=rows, **COMMON)
    assert np.array_equal(study.results["v"], run.v[:, -1])


def test_robots_and_factories(tmp_path):
    lengths = [0.3, 0.5, 0.8]
    robots = [functions.pendulum(x) for x in lengths]
    q0 = [[0.1], [0.4]]
    of_list = qddot.Study(robots, {"q0": q0, "robot": Grid(range(3))}, {"v": "v"}, directory=tmp_path / "l", **COMMON)
    space = {"q0": q0, "length": Grid(lengths)}
    of_factory = qddot.Study(functions.pendulum, space, {"v": "v"}, directory=tmp_path / "f", **COMMON)
    expected = [r.simulate(x, [0.0], **COMMON).v[-1] for x in q0 for r in robots]
    for study in (of_list, of_factory):
        assert np.array_equal(study.run("serial").results["v"], expected)
    with pytest.raises(InputError, match="numbers in its space"):
        qddot.Study(robots, {"q0": q0}, {"v": "v"}, directory=tmp_path / "x", **COMMON)
    with pytest.raises(InputError, match="takes length"):
        qddot.Study(functions.pendulum, {"q0": q0}, {"v": "v"}, directory=tmp_path / "x", **COMMON)


@pytest.mark.process
def test_a_function_sees_the_same_blocks(tmp_path):
    def study(name):
        space = {"x": Uniform(0.0, 1.0)}
        return qddot.Study(None, space, functions.squares, directory=tmp_path / name, samples=100, batch=16)

    serial = study("a").run("serial", chunk=1000).results
    assert np.array_equal(serial["square"], serial.values()["x"] ** 2)
    assert serial["pair"].shape == (100, 2)
    assert bits(study("b").run(workers=2, chunk=16).results) == bits(serial)
    assert bits(study("c").run(workers=1, chunk=33).results) == bits(serial)


def test_a_sample_again(arm, start, tmp_path):
    q0, v0 = start
    space = {"q0": q0, "v0": v0, "link2.mass": np.linspace(0.5, 2.0, N)}
    measures = {"energy": "max:energy", "last": "q"}
    study = qddot.Study(arm, space, measures, directory=tmp_path / "s", **COMMON).run("serial")
    for row in (0, 33):
        run = study.simulate(row)
        assert np.array_equal(run.q[-1], study.results["last"][row])
        assert len(run) == 31
        assert study.compute(row)["energy"] == study.results["energy"][row]
        assert np.isclose(run.energy.max(), study.results["energy"][row], rtol=1e-12)
    for row in (-1, N, True, 1.5):
        with pytest.raises(InputError, match="samples 0 to 39"):
            study.simulate(row)


def test_another_study_is_refused_with_what_differs(arm, start, tmp_path):
    q0, _ = start

    def study(**changes):
        given = {"space": {"q0": q0}, "measures": {"e": "energy"}, "robot": arm, **COMMON, **changes}
        robot, space, measures = (given.pop(k) for k in ("robot", "space", "measures"))
        return qddot.Study(robot, space, measures, directory=tmp_path / "s", **given)

    study().run("serial")
    changed = [
        ({"dt": 1e-3}, "dt was 0.002 and is 0.001"),
        ({"steps": 31}, "steps was 30 and is 31"),
        ({"space": {"q0": q0 + 1e-16 + 1e-12}}, "another rows"),
        ({"measures": {"e": "max:energy"}}, "measures"),
        ({"robot": arm.with_parameters({"link1.mass": 3.0})}, "another robot"),
        ({"integrator": "semi_implicit_euler"}, "integrator"),
    ]
    for change, says in changed:
        with pytest.raises(QddotError, match="holds another study") as caught:
            study(**change).run("serial")
        assert says in str(caught.value)
    assert study().run("serial").results["e"].shape == (N,)


def test_studies_of_nonsense(arm, tmp_path):
    def study(robot, space, measures, **options):
        return qddot.Study(robot, space, measures, directory=tmp_path / "s", **{**COMMON, **options})

    q0 = np.zeros((2, 3))
    for robot, space, measures, options, says in (
        (arm, {"q0": np.zeros((2, 4))}, {"e": "energy"}, {}, r"needs \(3,\)"),
        (arm, {"q0": q0, "link1.mas": [1.0, 2.0]}, {"e": "energy"}, {}, "link1.mas"),
        (arm, {"q0": q0, "link1.mass": np.ones((2, 2))}, {"e": "energy"}, {}, "it must be"),
        (arm, {"q0": q0}, {"../e": "energy"}, {}, "take letters"),
        (arm, {"q0": q0}, {"e": "energy", "E": "energy"}, {}, "each name once"),
        (arm, {"q0": q0}, {"e": "enrgy"}, {}, "did you mean 'energy'"),
        (arm, {"q0": q0}, {"e": ("maxx", "energy")}, {}, "did you mean 'max'"),
        (arm, {"q0": q0}, {}, {}, "give names"),
        (arm, {"q0": q0}, {"e": 3}, {}, "give a channel"),
        (arm, {"q0": q0}, {"e": lambda t: t}, {}, "takes 1 arguments"),
        (arm, {"q0": q0}, {"e": "energy"}, {"dt": None}, "needs dt"),
        (arm, {"q0": q0}, {"e": "max:energy"}, {"record": 7}, "does not divide"),
        (arm, {"q0": q0}, {"e": "energy"}, {"retries": -1}, "retries"),
        (3, {"q0": q0}, {"e": "energy"}, {}, "give a Robot"),
        (None, {"q0": q0}, {"e": "energy"}, {}, "needs a robot"),
        (None, {"x": [1.0]}, functions.squares, {}, "for simulations"),
        (arm, {"q0": q0}, {"e": "energy"}, {"stepps": 3}, "unexpected"),
    ):
        with pytest.raises((QddotError, TypeError), match=says):
            study(robot, space, measures, **options)
    good = study(arm, {"q0": q0}, {"e": "energy"})
    with pytest.raises(UnknownNameError, match="'local'"):
        good.run("locl")
    for options in ({"workers": 0}, {"timeout": -1.0}, {"part": (3, 2)}, {"part": 3}, {"chunk": 0}, {"address": "x"}):
        with pytest.raises(InputError):
            good.run("local", **options)
    with pytest.raises(TypeError, match="worker"):
        good.run("local", worker=2)


def test_views(arm, start, tmp_path):
    q0, _ = start
    space = {"q0": q0, "link1.mass": np.linspace(1.0, 2.0, N)}
    found = qddot.Study(arm, space, {"e": "energy", "v": "v"}, directory=tmp_path / "s", **COMMON).run("serial").results
    columns = found.columns()
    assert list(columns) == ["q0[0]", "q0[1]", "q0[2]", "link1.mass", "e", "v[0]", "v[1]", "v[2]"]
    assert np.array_equal(columns["v[1]"], found["v"][:, 1])
    found.save(tmp_path / "t.csv")
    lines = (tmp_path / "t.csv").read_text().splitlines()
    assert len(lines) == N + 1
    assert float(lines[5].split(",")[4]) == found["e"][4]
    with pytest.raises(UnknownNameError, match="did you mean 'e'"):
        _ = found["ee"]
    with pytest.raises(StudyError, match="parquet"):
        found.save(tmp_path / "t.xls")
    pytest.importorskip("pandas")
    assert found.to_pandas().shape == (N, 8)
    pytest.importorskip("xarray")
    data = found.to_xarray()
    assert data["v"].shape == (N, 3)
    assert np.array_equal(data["q0"], q0)
    parquet = pytest.importorskip("pyarrow.parquet")
    found.save(tmp_path / "t.parquet", "e")
    assert np.array_equal(parquet.read_table(tmp_path / "t.parquet")["e"], found["e"])


SCRIPT = """
import qddot
from qddot.study import Uniform

def own(robot, values):
    return {"y": values["x"] + 1.0}

GUARD
    study = qddot.Study(None, {"x": Uniform(0, 1)}, own, samples=20, directory=r"DIR").run("local", workers=1)
    print((study.results["y"] == study.results["x"] + 1.0).all(), len(study.results))
"""


@pytest.mark.process
def test_functions_of_a_script(tmp_path):
    def run(guard):
        script = tmp_path / "script.py"
        script.write_text(SCRIPT.replace("GUARD", guard).replace("DIR", str(tmp_path / "s")), encoding="utf-8")
        return subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)

    done = run('if __name__ == "__main__":')
    assert done.stdout.split() == ["True", "20"], done.stderr
    (tmp_path / "s" / "study.json").unlink()
    done = run("if True:")
    assert "__main__" in done.stderr
    assert "StudyError" in done.stderr


def test_the_folder_has_few_files(tmp_path):
    study = qddot.Study(None, {"x": Uniform(0, 1)}, functions.squares, samples=4000, batch=4, directory=tmp_path / "s")
    study.run("serial", chunk=4)
    assert len(list((tmp_path / "s").iterdir())) == 6  # lock, head, journal, failures, two measures
    assert json.loads((tmp_path / "s" / "failures.json").read_text()) == []


def test_results_of_an_unfinished_study(tmp_path):
    study = qddot.Study(None, {"x": Uniform(0, 1)}, functions.squares, samples=10, directory=tmp_path / "s")
    assert len(study.results) == 10
    assert study.results.names == ()
    assert not study.results.done.any()
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "study.json").write_text("{}")
    with pytest.raises(RecordingError, match="is this the folder of a study"):
        _ = study.results
