"""What the driver's stand-in launches, on emulated threads."""

import ctypes
import re

from qddot.compiler.codegen.abi import grid_steps
from qddot.compiler.targets import nvptx
from qddot.simulation import Rollout
from tests.support.grid_emulation import PRELUDE, Threads

TYPES = {"i64": ctypes.c_int64, "ptr": ctypes.c_void_p, "double": ctypes.c_double}
LAUNCHER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, *[ctypes.c_uint] * 4, ctypes.POINTER(ctypes.c_void_p))


class Card:
    """Runs what is launched, if its kernel is known."""

    def __init__(self):
        self.launched = []
        self._threads, self._types = None, ()
        self.callback = LAUNCHER(self._launch)

    def knows(self, text, block):
        """From now on launches are of this module."""
        self._threads = Threads(text, block)
        (signature,) = re.findall(r"define void @rows\((.*)\) #1", text)
        self._types = [TYPES[x.split()[0]] for x in signature.split(", ")][:-1]

    def _launch(self, name, blocks, layers, block, shared_bytes, parameters):
        self.launched.append((name.decode(), blocks, layers))
        given = [kind.from_address(parameters[k]) for k, kind in enumerate(self._types)]
        self._threads.run(name.decode(), given, (blocks, layers), shared_bytes)
        return 0


def steps_of(card, robot, controls=None, **options):
    """Simulations on a card are of this step from now on."""
    rollout = Rollout(robot, controls, target="cuda", **options)
    text = grid_steps.render(*rollout.traced(), nvptx.named(""), PRELUDE)
    card.knows(text, 128)
