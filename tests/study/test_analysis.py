"""What results say, on functions whose answers are known, and figures of them."""

import numpy as np
import pytest

import qddot
from qddot.errors import InputError, UnknownNameError
from qddot.study import Grid, Uniform


def ishigami(robot, values):
    x, y, z = values["x"].T
    return {"f": np.sin(x) + 7.0 * np.sin(y) ** 2 + 0.1 * z**4 * np.sin(x), "pair": values["x"][:, :2]}


def study(directory, samples=5 * 2048, **options):
    space = {"x": Uniform(np.full(3, -np.pi), np.pi)}
    return qddot.Study(None, space, ishigami, samples=samples, directory=directory, **options)


def test_sobol_indices_of_ishigami(tmp_path):
    """T. Ishigami and T. Homma 1990: closed forms for a = 7, b = 0.1."""
    found = study(tmp_path / "s", sampling="saltelli").run("serial").results.sensitivity("f")
    assert found.names == ["x[0]", "x[1]", "x[2]"]
    # errors of some percent with 2048 base points; quasi-random ones do better than the standard error says
    assert np.allclose(found.first, [0.3139, 0.4424, 0.0], atol=0.03)
    assert np.allclose(found.total, [0.5576, 0.4424, 0.2437], atol=0.03)
    assert (found.error < 0.05).all()


def test_quantiles_and_outliers(tmp_path):
    results = study(tmp_path / "s", samples=1000).run("serial").results
    assert np.array_equal(results.quantiles("f", [0.5]), np.quantile(results["f"], [0.5]))
    assert results.quantiles("pair").shape == (5, 2)
    rows = results.outliers("f", 3)
    middle = np.median(results["f"])
    assert abs(results["f"][rows[0]] - middle) == abs(results["f"] - middle).max()
    with pytest.raises(InputError, match="from 0 to 1"):
        results.quantiles("f", 2.0)
    with pytest.raises(InputError, match="saltelli"):
        results.sensitivity("f")


def test_figures(tmp_path):
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    own = study(tmp_path / "s", samples=500, sampling="saltelli").run("serial")
    for kind, names in (("histogram", ()), ("parallel", ()), ("map", ("x[0]", "x[1]", "f")), ("sensitivity", ("f",))):
        path = tmp_path / f"{kind}.png"
        own.plot(*names, kind=kind, path=path)
        assert path.stat().st_size > 5000
    with pytest.raises(UnknownNameError, match="histogram"):
        own.plot(kind="histogramm")
    with pytest.raises(UnknownNameError, match="column"):
        own.plot("g")
    with pytest.raises(InputError, match="three columns"):
        own.plot("f", kind="map")
    with pytest.raises(InputError, match="one number"):
        own.plot("pair", kind="sensitivity")
    new = qddot.Study(None, {"x": Grid([1.0])}, ishigami, directory=tmp_path / "n")
    with pytest.raises(InputError, match="no results yet"):
        new.plot()
