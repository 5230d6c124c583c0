"""A grid of GPU threads on this processor: each thread of a warp is a thread of the system, and warps meet at a barrier.

The text of a module is what a GPU gets, but for the prelude and the address spaces. One warp runs at a time; a block has
as much shared memory as its kernel asks for, filled with NaN, so that what is read before it is written shows.
"""

import ctypes
import threading
from math import prod

import numpy as np

from qddot.compiler.codegen.abi import grid, grid_frame
from qddot.compiler.codegen.abi.grid_passes import PassOptions
from qddot.compiler.ir.loop_program import Rolled
from qddot.compiler.runtime import llvm_compile
from qddot.compiler.targets.host import native
from tests.support.warp_turns import Turns

WARP = 32

PRELUDE = grid_frame.Prelude(
    kernel="define void",
    parameters=", ptr %env",
    begin=(),
    functions="".join(
        f"""define internal i32 @{name}(ptr %env) alwaysinline {{
  %p = getelementptr i32, ptr %env, i64 {k}
  %x = load i32, ptr %p
  ret i32 %x
}}
"""
        for k, name in enumerate(("thread", "block", "layer", "blocks"))
    )
    + "".join(  # a card's estimate is wrong in the last bits: test_cuda_device.py looks at what becomes of that
        f"""define internal {T} @reciprocal_estimate_{short}({T} %x) alwaysinline {{
  %r = fdiv {T} 1.0, %x
  ret {T} %r
}}
"""
        for T, short in (("float", "f32"), ("double", "f64"))
    )
    + """define internal double @multiply_add_up(double %a, double %b, double %c) alwaysinline {
  %p = fmul double %a, %b
  %r = fadd double %p, %c
  ret double %r
}
define internal ptr @shared(ptr %env) alwaysinline {
  %p = getelementptr ptr, ptr %env, i64 2
  %x = load ptr, ptr %p
  ret ptr %x
}
define internal void @meet(ptr %env) noinline {
  %p = getelementptr ptr, ptr %env, i64 3
  %barrier = load ptr, ptr %p
  %q = getelementptr ptr, ptr %env, i64 4
  %wait = load ptr, ptr %q
  %x = call i32 %wait(ptr %barrier)
  ret void
}
define internal void @join(ptr %env) noinline {
  %p = getelementptr ptr, ptr %env, i64 5
  %barrier = load ptr, ptr %p
  %q = getelementptr ptr, ptr %env, i64 4
  %wait = load ptr, ptr %q
  %x = call i32 %wait(ptr %barrier)
  ret void
}
""",
    has_spaces=False,
)


class Environment(ctypes.Structure):
    """What a thread finds in %env."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in ("thread", "block", "layer", "blocks")),
        *((name, ctypes.c_void_p) for name in ("shared", "barrier", "wait", "join")),
    ]


class Threads:
    """The kernels of a module, and the grids that run them."""

    def __init__(self, text, block, together=WARP):
        """Blocks of so many threads, of which so many may wait for each other."""
        self._engine = llvm_compile.engine_of(llvm_compile.compile_object(text, native(), "grid"))
        self._libc, self.block, self.together = ctypes.CDLL(None), block, together
        self.order = None  # of the warps that wait for each other, if they are to run one at a time (`warp_turns`)
        self.joins = []  # barriers that each of their threads came to

    def run(self, name, given, grid_size, shared_bytes=0):
        """A kernel with these arguments, in so many (blocks, layers)."""
        blocks, layers = grid_size
        types = [*map(type, given), ctypes.c_void_p]
        kernel = ctypes.CFUNCTYPE(None, *types)(self._engine.get_function_address(name))
        for layer in range(layers):
            for block in range(blocks):
                shared = np.full(shared_bytes // 8 + 16, np.nan)
                for first in range(0, self.block, self.together):
                    self._run(kernel, given, (first, block, layer, blocks), shared)

    def _run(self, kernel, given, place, shared):
        """Threads that may wait for each other, from the first of a block on."""
        first, *place = place
        start = shared.ctypes.data + -shared.ctypes.data % 64
        if self.order is not None:
            self._run_in_turn(kernel, given, (first, *place), start)
            return
        barriers = [self._barrier(WARP) for _ in range(self.together // WARP)]
        join, wait = self._barrier(self.together), ctypes.cast(self._libc.pthread_barrier_wait, ctypes.c_void_p).value
        own = [
            Environment(first + k, *place, start, ctypes.addressof(barriers[k // WARP]), wait, ctypes.addressof(join))
            for k in range(self.together)
        ]
        threads = [threading.Thread(target=kernel, args=(*given, ctypes.addressof(e))) for e in own]
        for t in threads:
            t.start()
        for t in threads:
            t.join()

    def _run_in_turn(self, kernel, given, place, start):
        """The same, one warp at a time in a known order."""
        first, *place = place
        turns = Turns(self.together // WARP, WARP, self.order)
        wait = ctypes.cast(turns.wait, ctypes.c_void_p).value
        own = [Environment(first + k, *place, start, 2 * k, wait, 2 * k + 1) for k in range(self.together)]
        threads = [
            threading.Thread(target=turns.run, args=(k, kernel, *given, ctypes.addressof(e))) for k, e in enumerate(own)
        ]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not turns.errors, turns.errors
        self.joins.append(turns.joins)

    def _barrier(self, count):
        barrier = ctypes.create_string_buffer(256)
        self._libc.pthread_barrier_init(barrier, None, count)
        return barrier


class Emulated:
    """The kernels of a function of arrays, called with arrays of this machine."""

    def __init__(self, program, inputs, output, dtype, target, options=None):
        self.inputs, self.output, self.dtype = inputs, output, np.dtype(dtype)
        n_outputs = program.n_outputs if isinstance(program, Rolled) else len(program.outputs)
        assert n_outputs == prod(output), "a kernel would write where nothing of it belongs"
        if isinstance(options, PassOptions):
            made = grid.render_in_passes(program, inputs, output, dtype, target, options, PRELUDE)
            self.texts, self.facts = made
        elif options is None:
            self.texts, self.facts = grid.render_modules(program, inputs, output, dtype, target, None, PRELUDE)
        else:
            text, self.facts = grid.render(program, inputs, output, dtype, target, options, PRELUDE)
            self.texts = [text]
        self.text = self.texts[0]
        self.use(*self.texts)

    def use(self, *texts):
        """Runs these modules from now on, one after another."""
        self.modules = [Threads(text, self.facts.threads, WARP * self.facts.warps_per_state) for text in texts]
        self.threads = self.modules[0]

    def __call__(self, name, *arrays, out, blocks=None):
        """Runs a kernel: arrays have one batch axis, or none if all states share them."""
        count = len(out)
        given = [ctypes.c_int64(count)]
        for a, shape in zip((*arrays, out), (*self.inputs, self.output), strict=True):
            strides = [s // a.itemsize for s in a.strides]
            assert a.dtype == self.dtype
            given.append(ctypes.c_void_p(a.ctypes.data))
            given += [ctypes.c_int64(s) for s in ([0] * (1 + len(shape) - a.ndim) + strides)]
        blocks = -(-count // self.facts.states) if blocks is None else blocks
        numbers = self.facts.scratch_numbers * self.facts.threads * blocks
        numbers += -(-count // WARP) * WARP * self.facts.kept_numbers
        self.scratch = np.full(numbers, np.nan, self.dtype)
        given.append(ctypes.c_void_p(self.scratch.ctypes.data))
        for k, module in enumerate(self.modules):
            facts = self.facts.of_module(k)
            module.run(name, given, (blocks, facts.groups), facts.shared_bytes)
