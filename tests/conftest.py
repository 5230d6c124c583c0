"""Markers, profiles and a kernel cache for the tests.

Kernels compiled by the tests are kept in a folder with a key of their own, shared by the workers of one machine.
"""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.support import markers, peers, profiles
from tests.support.paths import ROOT
from tests.support.targets import WAYS, restricted

peers.hide()

USER = os.getuid() if hasattr(os, "getuid") else "user"  # Windows has a folder for temporary files for each user
_FOLDER = Path(tempfile.gettempdir()) / f"qddot-test-cache-{USER}"
os.environ.setdefault("QDDOT_CACHE_DIR", str(_FOLDER))
os.environ.setdefault("QDDOT_CACHE_KEY", f"{_FOLDER}.key")

_LANES = os.environ.get("QDDOT_TEST_LANES")


def pytest_configure(config):
    profiles.load("dev" if config.option.markexpr == "quick" else "ci")


def pytest_itemcollected(item):
    own = {mark.name for mark in item.iter_markers()}
    for name in markers.of(item.path, item.originalname, item.fixturenames, own):
        item.add_marker(name)


@pytest.fixture(autouse=True, scope="session")
def _lanes_of_this_run():
    with restricted(int(_LANES) if _LANES else None):
        yield


@pytest.fixture(params=WAYS, ids=lambda way: f"{way[0] or 'own'}-lanes-{way[1]}-loader")
def way(request):
    """A test that asks for it runs in each of these ways."""
    with restricted(*request.param):
        yield request.param


@pytest.fixture
def arm(tmp_path):
    """A script that is Python on the emulated ARM machine; its processes start it again for processes of their own."""
    machine = os.environ.get("QDDOT_ARM_ROOT")
    if not machine:
        pytest.skip("QDDOT_ARM_ROOT names no emulated ARM machine; tests/compiler/test_machines.py says how to make one")
    python = tmp_path / "python"
    start = f"exec qemu-aarch64-static -L {machine}/root {machine}/root/usr/bin/python3.11"
    python.write_text(f'#!/bin/sh\nexport PYTHONPATH={ROOT}:{machine}/site\n{start} "$@"\n')
    python.chmod(0o755)
    return str(python)


@pytest.fixture(scope="module")
def chromium():
    """A headless Chromium that draws in software."""
    pytest.importorskip("viser", reason="needs viser: pip install 'qddot[view]'")
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
    path = os.environ.get("CHROMIUM") or next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
    )
    if not path:
        pytest.skip("no Chromium on this machine: install one, or say where by CHROMIUM=")
    flags = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--disable-background-networking"]
    with api.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=path, args=flags)
        yield browser
        browser.close()
