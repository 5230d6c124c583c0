"""Transposes in registers: every width, type and length of rows gives the numbers that it was given, in their places."""

import numpy as np
import pytest

from qddot.compiler.codegen.abi import gufunc
from qddot.compiler.codegen.llvm.transpose import has_transposes
from qddot.compiler.ir.expr import trace
from qddot.compiler.ir.program import straight_line
from qddot.compiler.runtime import llvm_compile
from qddot.compiler.runtime.gufunc import kernel as kernel_from_code
from qddot.compiler.runtime.kernel import Info
from qddot.compiler.targets.host import host

SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 40]


def moved(size, lanes, dtype, order):
    """A kernel that gives its inputs in another order: nothing is rounded."""
    graph, nodes, _ = trace(lambda x, y: np.array([(*x, *y)[k] for k in order], dtype=object), [size, 3])
    program = straight_line(graph, nodes, size + 3)
    text = gufunc.render(program, [(size,), (3,)], [(len(order),)], lanes, dtype, host())
    assert ("@columns0" in text) == has_transposes(lanes) == (lanes > 1)
    code = llvm_compile.Code(llvm_compile.compile_object(text))
    info = Info("moved", "test", "unrolled", dtype, lanes, {}, len(order), 0, 0.0, False)
    return kernel_from_code(code, ["x", "y"], [(size,), (3,)], (len(order),), info, lambda: "")


@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_numbers_get_where_they_belong(lanes, dtype):
    rng = np.random.default_rng(0)
    for size in SIZES:
        order = list(rng.permutation(size + 3)[: max(1, size)])
        if size > 32:
            order[5:9] = order[0], order[1], order[0], order[1]  # columns that are shared
        kernel = moved(size, lanes, dtype, order)
        for n in (lanes, 2 * lanes + 1):
            x, y = (rng.standard_normal((n, k)).astype(dtype) for k in (size, 3))
            expected = np.concatenate([x, y], axis=1)[:, order]
            assert np.array_equal(kernel(x, y), expected)
            assert np.array_equal(kernel(x, y[0]), np.concatenate([x, y[:1].repeat(n, 0)], axis=1)[:, order])
            around = np.full((n, 2, len(order)), 7.0, dtype)
            kernel(np.stack([x, x], 1)[:, 0], y, out=around[:, 0])  # rows with gaps between them
            assert np.array_equal(around[:, 0], expected)
            assert (around[:, 1] == 7.0).all()
