"""The warps of a block one at a time: each runs to the next barrier of the block, in an order that a test chooses.

A value that a warp reads before the barrier behind which it was written is another one in another order. Which thread came
to how many barriers is counted.
"""

import ctypes
import threading

WAIT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_size_t)
_SECONDS = 60.0  # after which threads that wait are thought to wait for ever


class Turns:
    """Of the warps of one block; `order` gives for the number of a barrier the order of the warps after it."""

    def __init__(self, warps, lanes, order):
        self._lanes, self._order = lanes, order
        self.joins = [0] * (warps * lanes)  # barriers of the block that each thread came to
        self.errors = []
        self._lock = threading.Lock()
        self._gates = [threading.Semaphore(0) for _ in self.joins]
        self._meetings = [threading.Barrier(lanes) for _ in range(warps)]
        self._stopped, self._ended = [0] * warps, [0] * warps
        self._number, self._queue = 0, list(order(0))
        self.wait = WAIT(self._wait)  # for generated code: meets where a thread says 2 k, joins where it says 2 k + 1
        self._begin_turn()

    def run(self, k, kernel, *given):
        """The k-th thread, from the first turn of its warp on."""
        w = k // self._lanes
        self._enter(k)
        kernel(*given)
        with self._lock:
            self._ended[w] += 1
            self._stop(w)

    def _wait(self, word):
        k, joins = divmod(word, 2)
        w = k // self._lanes
        try:
            if not joins:
                self._meetings[w].wait(_SECONDS)
                return 0
            with self._lock:
                self.joins[k] += 1
                self._stop(w)
            self._enter(k)
        except (threading.BrokenBarrierError, TimeoutError) as error:
            self.errors.append(repr(error))
        return 0

    def _enter(self, k):
        if not self._gates[k].acquire(timeout=_SECONDS):
            raise TimeoutError(f"thread {k} waits for ever")

    def _begin_turn(self):
        w = self._queue[0]
        for gate in self._gates[w * self._lanes : (w + 1) * self._lanes]:
            gate.release()

    def _stop(self, w):
        """A thread of the warp whose turn it is waits or has ended; the last one hands over."""
        self._stopped[w] += 1
        if self._stopped[w] < self._lanes:
            return
        self._stopped[w] = 0
        self._queue.pop(0)
        if not self._queue:
            self._number += 1
            if any(self._ended) and not all(x == self._lanes for x in self._ended):
                self.errors.append(f"some threads have ended at barrier {self._number}, others wait: {self._ended}")
            self._queue = [x for x in self._order(self._number) if self._ended[x] < self._lanes]
        if self._queue:
            self._begin_turn()
