"""A stand-in for NVIDIA's driver, for the tests that ask for it."""

import ctypes
import gc
import sys

import pytest

from qddot.compiler.runtime.cuda import context, driver
from tests.support import fake_cuda
from tests.support.emulated_card import Card


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    return fake_cuda.Fake(fake_cuda.built(tmp_path_factory.mktemp("fake_cuda")))


@pytest.fixture
def fake(library, monkeypatch, tmp_path):
    """The stand-in as a process meets it that has not used a card before."""
    gc.collect()
    library.reset()
    monkeypatch.setenv("QDDOT_CUDA_DRIVER", str(library.path))
    monkeypatch.setenv("QDDOT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(driver, "_loaded", None)
    monkeypatch.setattr(context, "_known", None)
    for name in ("torch", "cupy", "jax"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield library
    gc.collect()


@pytest.fixture
def card(fake):
    """The same, whose launches run on emulated threads."""
    made = Card()
    fake.set("launcher", ctypes.cast(made.callback, ctypes.c_void_p).value)
    yield made
    fake.set("launcher", 0)
