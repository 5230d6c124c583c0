"""Ray and Dask: the same bits as here, failures listed alike, and everything that was started is stopped."""

import sys

import numpy as np
import pytest

from qddot.errors import MissingExtraError
from tests.support.study_faults import content, poisoned, sweep

pytestmark = pytest.mark.process


@pytest.mark.parametrize("name", ["ray", "dask"])
def test_an_engine_that_is_not_there_names_its_extra(name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, {"ray": "ray", "dask": "distributed"}[name], None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'qddot\[{name}\]'"):
        sweep(tmp_path / "s").run(name)
    assert not sweep(tmp_path / "s").results.done.any()


def test_ray_gives_the_same_bits(ray, expected, tmp_path):
    assert content(sweep(tmp_path / "s").run("ray")) == expected
    assert ray.is_initialized()  # it was there before


def test_ray_lists_failures_alike(ray, tmp_path):
    x = np.random.default_rng(0).uniform(size=12)
    x[[3, 7, 11]] = [-2.0, -3.0, -1.0]
    study = poisoned(tmp_path / "s", x, retries=0, batch=1).run("ray", timeout=1.0, chunk=2)
    found = {f.row: (f.kind, f.reason) for f in study.failures}
    assert found == {
        3: ("died", "its worker died"),
        7: ("timeout", "it takes longer than 1 s"),
        11: ("raised", "ValueError: 1 of them must not be -1"),
    }
    fine = np.delete(np.arange(12), list(found))
    assert np.array_equal(study.results["root"][fine], np.sqrt(x[fine]))


def test_dask_gives_the_same_bits(expected, tmp_path):
    pytest.importorskip("distributed", reason="needs Dask: pip install 'qddot[dask]'")
    assert content(sweep(tmp_path / "s").run("dask", workers=2)) == expected


@pytest.mark.slow
def test_dask_lists_failures_alike(tmp_path):
    pytest.importorskip("distributed", reason="needs Dask: pip install 'qddot[dask]'")
    x = np.random.default_rng(0).uniform(size=40)
    x[[3, 31]] = [-2.0, -1.0]
    study = poisoned(tmp_path / "s", x, retries=0, batch=4).run("dask", workers=2)
    assert {f.row: f.kind for f in study.failures} == {3: "died", 31: "raised"}
