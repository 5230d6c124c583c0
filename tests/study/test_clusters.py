"""Ray and Dask: the same bits as here, failures listed alike, and everything that was started is stopped."""

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import qddot
from qddot.errors import MissingExtraError
from qddot.study.engine_local import LocalEngine
from tests.support.study_faults import content, descendants, is_gone, listening, needs_proc, poisoned, sweep

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


@needs_proc
def test_rays_servers_listen_on_loopback_alone(ray):
    places = set().union(*(listening(pid) for pid in [os.getpid(), *descendants(os.getpid())]))
    assert len(places) > 2
    assert {host for host, _ in places} == {"127.0.0.1"}


OWN = """
import os, sys
import ray
from tests.support.study_faults import descendants, sweep
if __name__ == "__main__":
    study = sweep(sys.argv[1], batch=100).run("ray", workers=1)
    print(study.results.done.all(), ray.is_initialized(), os.environ["RAY_AUTH_MODE"], descendants(os.getpid()))
"""


@pytest.mark.parametrize("code", [OWN, pytest.param(OWN.replace("import ray\nfrom", "from"), marks=pytest.mark.slow)])
def test_ray_with_a_token_whoever_has_imported_it(code, tmp_path):
    """And nothing of it is left afterwards."""
    pytest.importorskip("ray", reason="needs Ray: pip install 'qddot[ray]'")
    own = {k: x for k, x in os.environ.items() if not k.startswith("RAY_")}
    code = code.replace("print(", "import ray; print(") if "import ray\n" not in code else code
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "s")], env=own, capture_output=True, text=True)
    assert done.stdout.split()[:3] == ["True", "False", "token"], done.stderr
    assert all(is_gone(int(pid)) for pid in done.stdout.split("[")[1].strip("]\n").split(",") if pid)


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


CARDS = """
import os, sys
import numpy as np
import ray
import qddot
from qddot.study.engine_ray import on_loopback

def card(robot, values):
    import time
    time.sleep(0.05)
    return {"card": np.full(len(values["x"]), float(os.environ["CUDA_VISIBLE_DEVICES"]))}

if __name__ == "__main__":
    with on_loopback():
        ray.init(include_dashboard=False, _node_ip_address="127.0.0.1", num_cpus=4, num_gpus=2, log_to_driver=False)
    study = qddot.Study(None, {"x": np.arange(200.0)}, card, batch=1, directory=sys.argv[1])
    study.plan.work.is_for_cuda = True
    study.run("ray", chunk=1)
    print(sorted(set(study.results["card"].tolist())))
"""


@pytest.mark.slow
def test_every_actor_has_a_card_of_its_own(tmp_path):
    """Ray is told that there are two cards; what runs on them is a function that says which one it was given."""
    pytest.importorskip("ray", reason="needs Ray: pip install 'qddot[ray]'")
    script = tmp_path / "cards.py"
    script.write_text(CARDS, encoding="utf-8")
    done = subprocess.run([sys.executable, str(script), str(tmp_path / "s")], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[0.0, 1.0]", done.stderr


def test_a_study_for_a_card_takes_one_worker_and_large_blocks(tmp_path):
    arm = qddot.chain(3, rng=0)
    study = qddot.Study(arm, {"q0": np.zeros((8, 3))}, {"e": "energy"}, dt=1e-3, steps=10, directory=tmp_path / "s")
    work = study.plan.work
    assert not work.is_for_cuda
    before = work.together(10**9)
    work.prepared.target = "cuda"
    assert pickle.loads(pickle.dumps(work)).is_for_cuda
    assert work.together(10**9) > 20 * before
    engine = LocalEngine(study.plan, {})
    engine.close()
    assert engine.workers == 1
