"""JAX in double precision for these tests; they are skipped where there is none."""

import pytest

from tests.support.peers import peer


@pytest.fixture(autouse=True)
def double_precision():
    """As `jax_enable_x64` has it; a test of single precision takes it back."""
    jax = peer("jax")
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)
