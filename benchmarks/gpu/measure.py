"""The process that has the card: `python -m benchmarks.gpu.measure FOLDER [--rehearse]`, in and out lines of JSON.

A request ends with {"done": …}; rows come before it as they are measured, so that what was measured before a kernel hangs
is not lost.
"""

import json
import sys
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import TOLERANCE
from benchmarks.gpu import cases, others, rollouts, roofline
from benchmarks.gpu.card import Card, Loaded, Rehearsal
from benchmarks.gpu.cases import Case
from benchmarks.gpu.prepare import reference_path, variant_path
from qddot.errors import DeviceError

_KEPT_BYTES = 24 << 30  # of inputs on the card, or an eighth of its memory
_TIMES_THE_CPU = 4.0  # error of single precision, over that of the CPU's kernel: other states may be worse
_COMPARED_COLUMNS = 32  # numbers of a state that are compared, of large batches in columns


class Measure:
    """Answers requests."""

    def __init__(self, folder: Path, card: Card | Rehearsal) -> None:
        self.folder, self.card = folder, card
        self.machine = card.describe()
        self._inputs: OrderedDict[Any, list[Any]] = OrderedDict()
        self._robots: dict[str, Any] = {}
        self._expected: dict[tuple[str, str], dict[str, np.ndarray]] = {}
        self._known_states: dict[tuple[str, str, str], list[np.ndarray]] = {}
        self._most_bytes = min(_KEPT_BYTES, self.machine.get("memory_bytes", 8 << 30) // 8)

    def answer(self, request: dict[str, Any], send: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Does what is asked; rows are sent one by one."""
        match request["do"]:
            case "card":
                return self.machine
            case "case":
                return self._case(Case(*request["case"]), request, send)
            case "variant":
                return self._variant(Case(*request["case"]), request)
            case "calls":
                return self._calls(Case(*request["case"]), send)
            case "rollout":
                target = "cpu" if isinstance(self.card, Rehearsal) else "cuda"
                return rollouts.row(self._robot(request["robot"]), request["integrator"], target)
            case "frax":
                return others.frax_rows(request["robot"], request["function"], request["batches"], send)
        raise ValueError(f"request {request['do']!r} is not known")

    # ---- cases

    def _case(self, case: Case, request: dict[str, Any], send: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        loaded = self.card.kernel(case, self._robot(case.robot))
        send({"ready_seconds": loaded.seconds, "cached": loaded.cached, "facts": loaded.facts})
        batches = cases.batches(tuple(request["batches"]), int(np.prod(loaded.output)))
        for layout in request["layouts"]:
            for batch in batches:
                try:
                    send(self._row(case, loaded, layout, batch, request["instructions"]))
                except DeviceError as error:  # the context may be lost: the process is started again
                    send({"layout": layout, "batch": batch, "error": str(error)})
                    raise
                except Exception as error:  # a row of the report
                    send({"layout": layout, "batch": batch, "error": f"{type(error).__name__}: {error}"})
        return {}

    def _row(self, case: Case, loaded: Loaded, layout: str, batch: int, instructions: int) -> dict[str, Any]:
        inputs = self._arguments(case, layout, batch)
        out = self.card.empty(batch, loaded.output, case.dtype, layout)
        loaded.call(*inputs, out=out)
        agreement = self._agreement(case, out, layout, batch)
        seconds = self.card.seconds(lambda: loaded.call(*inputs, out=out))
        numbers = sum(int(np.prod(s)) for s in (*loaded.inputs, loaded.output))
        row = {"layout": layout, "batch": batch, "seconds": seconds, "states_per_second": batch / seconds}
        own = roofline.of(self.machine, case.dtype, numbers, instructions, seconds / batch)
        return row | own | agreement

    def _agreement(self, case: Case, out: Any, layout: str, batch: int) -> dict[str, Any]:
        """The error against doubles of the CPU, relative to the largest number, and whether bits are those of the CPU."""
        expected = self._expectation(case)
        precise, same = expected["float64"], expected[case.dtype]
        scale, worst, equal = float(np.abs(precise).max()) or 1.0, 0.0, True
        for rows, columns in self._looks(out.shape, layout, batch):
            piece = out[rows] if columns is None else out.T[columns]
            found = self.card.host(piece)
            which = np.arange(batch)[rows] % len(precise)
            if columns is None:
                wanted, bits = precise[which], same[which]
            else:
                wanted, bits = precise[which, columns], same[which, columns]
            found = found.reshape(wanted.shape)
            lost = np.isnan(found) & np.isnan(bits)  # single precision cannot say, on the CPU either
            errors = np.where(lost, 0.0, np.abs(found - wanted))
            worst = max(worst, float(np.where(np.isnan(errors), np.inf, errors).max()) / scale)
            equal = equal and bool(((found == bits) | lost).all())
        return {"error": worst, "bits_equal": equal, "agrees": equal or worst <= self._tolerance(case, scale)}

    def _looks(self, shape: tuple[int, ...], layout: str, batch: int) -> Iterator[tuple[slice, int | None]]:
        """What is compared: all of a small batch, the first and the last states of a large one, or some columns."""
        most = cases.STATES
        if batch <= most:
            yield slice(None), None
        elif layout == "row":
            yield from ((slice(0, most), None), (slice(batch - most, batch), None))
        elif len(shape) == 2:
            step = max(1, shape[1] // _COMPARED_COLUMNS)
            yield from ((slice(None), k) for k in range(0, shape[1], step))

    # ---- layouts of a search

    def _variant(self, case: Case, request: dict[str, Any]) -> dict[str, Any]:
        made = json.loads(variant_path(self.folder, case, request["options"]).read_text(encoding="utf-8"))
        inputs = [x.shape[1:] for x in self._states(case)]
        output = self._expectation(case)["float64"].shape[1:]
        loaded = self.card.variant(case, made, inputs, output)
        rows = []
        for batch in cases.batches(tuple(request["batches"]), int(np.prod(output))):
            rows.append(self._row(case, loaded, "row", batch, request["instructions"]))
        return {"rows": rows, "facts": loaded.facts, "load_seconds": loaded.seconds}

    # ---- one call from Python

    def _calls(self, case: Case, send: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Microseconds of one call with a small batch, by the kind of its arrays."""
        loaded = self.card.kernel(case, self._robot(case.robot))
        rows = [x[:256] for x in self._states(case)]
        for name, make in others.arrays_of_frameworks(self.card).items():
            for with_out in (False, True):
                try:
                    given = [make(x) for x in rows]
                    call = loaded.call
                    out = loaded.call(*given) if with_out else None
                    if with_out and name == "jax":
                        continue  # its arrays are constant
                    own = {"out": out} if with_out else {}
                    seconds = self.card.host_seconds(lambda c=call, g=given, o=own: c(*g, **o))
                    send({"arrays": name, "out": with_out, "seconds": seconds})
                except Exception as error:  # a framework that is not there, or of another version
                    send({"arrays": name, "out": with_out, "error": f"{type(error).__name__}: {error}"})
        return {}

    # ---- what is kept

    def _robot(self, name: str) -> Any:
        if name not in self._robots:
            self._robots[name] = cases.load(name, self.folder / "robots")
        return self._robots[name]

    def _states(self, case: Case) -> list[np.ndarray]:
        if case not in self._known_states:
            own = cases.states(self._robot(case.robot), case.function)
            self._known_states[case] = [x.astype(case.dtype) for x in own]
        return self._known_states[case]

    def _expectation(self, case: Case) -> dict[str, np.ndarray]:
        key = case.robot, case.function
        if key not in self._expected:
            with np.load(reference_path(self.folder, *key)) as file:
                self._expected = {key: {dtype: file[dtype] for dtype in cases.DTYPES}}
        return self._expected[key]

    def _tolerance(self, case: Case, scale: float) -> float:
        """Relative to the largest number: ours to the CPU's doubles; of single precision what the CPU loses, and some."""
        if case.dtype == "float64":
            return TOLERANCE
        expected = self._expectation(case)
        own = float(np.nanmax(np.abs(expected["float32"] - expected["float64"]))) / scale
        return _TIMES_THE_CPU * own + float(np.finfo(np.float32).eps)

    def _arguments(self, case: Case, layout: str, batch: int) -> list[Any]:
        """Arrays on the card; functions of a robot share them."""
        rows, found = self._states(case), []
        for k, x in enumerate(rows):
            key = case.robot, case.dtype, layout, batch, k
            if key not in self._inputs:
                self._inputs[key] = [self.card.repeated(x, batch, layout)]
                while len(self._inputs) > len(rows) and self._bytes() > self._most_bytes:
                    self._inputs.popitem(last=False)
            self._inputs.move_to_end(key)
            found += self._inputs[key]
        return found

    def _bytes(self) -> int:
        return sum(x.nbytes for xs in self._inputs.values() for x in xs)


def main() -> None:
    folder, rehearse = Path(sys.argv[1]), "--rehearse" in sys.argv[2:]

    def send(x: dict[str, Any]) -> None:
        print(json.dumps(x), flush=True)

    try:
        measure = Measure(folder, Rehearsal() if rehearse else Card())
    except Exception as error:
        send({"done": {"error": f"{type(error).__name__}: {error}"}})
        return
    for line in sys.stdin:
        try:
            found = measure.answer(json.loads(line), lambda row: send({"row": row}))
        except Exception as error:  # becomes a row of the report
            traceback.print_exc()
            found = {"error": f"{type(error).__name__}: {error}", "code": getattr(error, "code", 0)}
        send({"done": found})


if __name__ == "__main__":
    main()
