"""Kernels compiled by the tests are kept in a folder of their own, shared by the workers of one machine."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

os.environ.setdefault("QDDOT_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"qddot-test-cache-{os.getuid()}"))


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
