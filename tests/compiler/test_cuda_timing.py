"""Measuring on a card, by a context that writes down what it is asked; views of arrays on a card."""

from types import SimpleNamespace

import numpy as np
import pytest

from qddot.compiler.runtime.cuda import timing
from qddot.compiler.runtime.cuda.arrays import DeviceArray


class Context:
    """Its clock says two milliseconds less each time."""

    def __init__(self):
        self.log, self.milliseconds = [], 12.0
        self.driver = SimpleNamespace(
            cuEventRecord=lambda event, stream: self.log.append((event, stream)),
            cuEventSynchronize=lambda event: self.log.append("wait"),
            cuEventDestroy_v2=lambda event: self.log.append(f"no {event}"),
            cuMemcpyDtoDAsync_v2=lambda to, source, size, stream: self.log.append((to, source, size, stream)),
            elapsed_ms=self.elapsed,
        )
        self.events = iter(("begin", "end"))

    def elapsed(self, begin, end):
        self.milliseconds -= 2.0
        return self.milliseconds

    def event(self, timing):
        assert timing
        return next(self.events)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass


@pytest.fixture
def context(monkeypatch):
    own = Context()
    monkeypatch.setattr(timing, "find", lambda: (own, False))
    return own


def test_other_work_is_ahead_of_the_clock(context):
    log = context.log
    best = timing.device_time(lambda: log.append("call"), 2, 3, 7, ahead=lambda: log.append("ahead"))
    one_round = ["ahead", ("begin", 7), "call", "call", ("end", 7), "wait"]
    assert log == ["call"] * 3 + 3 * one_round + ["no end", "no begin"]
    assert best == pytest.approx(6e-3 / 2)  # the least of 10, 8 and 6 ms


def test_copies_read_and_write(context, monkeypatch):
    places = iter((100, 200))
    monkeypatch.setattr(timing, "empty", lambda shape, dtype, own: SimpleNamespace(pointer=next(places), shape=shape))
    found = timing.copy_bandwidth(1 << 20)
    assert found == pytest.approx(2 * (1 << 20) / (1e-3 * 2.0 / 20))  # the last of five rounds says 2 ms for 20 calls
    assert (200, 100, 1 << 20, 0) in context.log


def test_columns_are_rows_of_the_view():
    array = DeviceArray(SimpleNamespace(context=None), 1000, (3, 5), (5, 1), np.dtype("float32"))
    assert (array.T.shape, array.T.strides, array.T.pointer) == ((5, 3), (1, 5), 1000)
    assert array.T[2].pointer == 1000 + 2 * 4
    assert array.T[2].strides == (5,)
    assert (array.T.T.shape, array.T.T.strides) == ((3, 5), (5, 1))
