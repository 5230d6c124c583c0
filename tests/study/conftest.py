"""A Ray cluster on this machine, and what an undisturbed study gives."""

import os
import shutil

import pytest

from qddot.study import engine_ray
from tests.support.study_faults import content, sweep


@pytest.fixture(scope="package")
def ray():
    module = pytest.importorskip("ray", reason="needs Ray: pip install 'qddot[ray]'")
    if module.is_initialized():
        pytest.skip("somebody else's Ray is running in this process")
    with pytest.MonkeyPatch.context() as patch, engine_ray.on_loopback():
        patch.setenv(engine_ray.CLUSTERS, "0")  # for other drivers of this cluster
        options = {"include_dashboard": False, "_node_ip_address": "127.0.0.1", "num_cpus": 2, "log_to_driver": False}
        module.init(configure_logging=False, **options)
        yield module
        module.shutdown()


@pytest.fixture
def engine(request):
    """The name of an engine of this machine; Ray is started for it."""
    if request.param == "ray":
        request.getfixturevalue("ray")
    return request.param


@pytest.fixture(scope="package")
def expected(tmp_path_factory):
    return content(sweep(tmp_path_factory.mktemp("serial") / "s").run("serial"))


@pytest.fixture(scope="session")
def needs_namespaces():
    if not hasattr(os, "geteuid") or os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("networks are cut by root only, with `ip` (package iproute2)")
