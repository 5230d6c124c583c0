"""A program that calls exported functions at one state and compares their results with those of the interpreter.

It is C for a computer (`main.c`) or a sketch for an Arduino (`NAME.ino`). Both print the results and say whether they are
what qddot found when it wrote them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qddot.compiler.codegen import c99
from qddot.compiler.ir import interpreter
from qddot.dynamics.export_file import Printed

_COLUMNS = 100  # of a row of numbers

State = Mapping[str, NDArray[Any]]  # inputs by the names that Python has for them


class _Numbers(NamedTuple):
    """How numbers are written and compared: a tolerance of the largest number of a result is that of another arithmetic."""

    name: str
    digits: int  # that give a number back to the last bit
    absolute: str
    one: str
    tolerance: str


_NUMBERS = {
    "float64": _Numbers("double", 17, "fabs", "1.0", "1e-9"),
    "float32": _Numbers("float", 9, "fabsf", "1.0f", "1e-2f"),
}


def main_program(name: str, printed: Sequence[Printed], state: State) -> str:
    """`main.c`: returns 0 if all results are as expected."""
    T = _NUMBERS[printed[0].code.dtype]
    show = ['printf("%s", name);', f'printf(" %.{T.digits}g", (double)x[k]);', 'printf("%s\\n", off ? " differs" : "");']
    end = ['printf("%s\\n", example_wrong ? "wrong: results differ from the expected ones" : "ok");']
    end += ["return example_wrong != 0;"]
    begin = ["#include <math.h>", "#include <stdio.h>", "", f'#include "{name}.h"', ""]
    calls = _calls(printed, state)
    return _text(name, [*begin, *_shared(printed, state, show), *calls, *_function("int main(void)", printed, [], end)])


def sketch(name: str, printed: Sequence[Printed], state: State) -> str:
    """`NAME.ino`: prints to the serial port once."""
    T = _NUMBERS[printed[0].code.dtype]
    number = ["Serial.print(' ');", f"Serial.print(x[k], {T.digits});"]
    show = ["Serial.print(name);", " ".join(number), 'Serial.println(off ? " differs" : "");']
    end = ['Serial.println(example_wrong ? "wrong: results differ from the expected ones" : "ok");']
    start = ["Serial.begin(115200);", "while (!Serial) {", "}"]
    begin = ["#include <Arduino.h>", "#include <math.h>", "", f"#include <{name}.h>", ""]
    setup = _function("void setup()", printed, start, end)
    return _text(
        name, [*begin, *_shared(printed, state, show), *_calls(printed, state), *setup, "", "void loop()", "{", "}"]
    )


def _text(name: str, lines: Sequence[str]) -> str:
    about = [f"{name}: its functions at one state, beside the results of qddot's interpreter", ""]
    about += [
        "Last digits may differ: the interpreter has sine and cosine of the C library of the machine that wrote this."
    ]
    return "\n".join([c99.comment(about), *lines, ""])


def _shared(printed: Sequence[Printed], state: State, show: Sequence[str]) -> Iterator[str]:
    """The inputs, and what prints and compares a result; `show` prints its name, a number, and the end of the line."""
    T = _NUMBERS[printed[0].code.dtype]
    inputs = {y: x for f in printed for x, (y, _) in zip(f.exported.input_names, f.code.inputs, strict=True)}
    for argument, name in inputs.items():
        yield from _array(f"example_{argument}", state[name].ravel(), printed[0].code.dtype)
    yield from (
        "static int example_wrong = 0;",
        "",
        f"static void example_show(const char *name, const {T.name} *x, const {T.name} *expected, int n)",
        "{",
        f"    {T.name} largest = {T.one};",
        "    int off = 0;",
        "    for (int k = 0; k < n; k++)",
        f"        if ({T.absolute}(expected[k]) > largest)",
        f"            largest = {T.absolute}(expected[k]);",
        "    for (int k = 0; k < n; k++)",
        f"        if (!({T.absolute}(x[k] - expected[k]) <= {T.tolerance} * largest))",
        "            off = 1;",
        "    example_wrong += off;",
        f"    {show[0]}",
        "    for (int k = 0; k < n; k++) {",
        f"        {show[1]}",
        "    }",
        f"    {show[2]}",
        "}",
        "",
    )


def _calls(printed: Sequence[Printed], state: State) -> Iterator[str]:
    """A function for each of the exported ones that calls it."""
    for number, (exported, _, code) in enumerate(printed):
        T = _NUMBERS[code.dtype]
        given = np.concatenate([np.asarray(state[x], code.dtype).ravel() for x in exported.input_names])
        results = np.array(interpreter.run(code.program, given.astype(float).tolist()))
        yield from (f"/* {code.name} */", f"static void example_{number}(void)", "{")
        at, shown = 0, list[str]()
        for name, n in code.outputs:
            yield from (f"    {line}".rstrip() for line in _array(f"expected_{name}", results[at : at + n], code.dtype))
            yield f"    static {T.name} found_{name}[{n}];"
            shown.append(f'    example_show("{code.name} {name}", found_{name}, expected_{name}, {n});')
            at += n
        arguments = [*(f"example_{x}" for x, _ in code.inputs), *(f"found_{x}" for x, _ in code.outputs)]
        call = textwrap.wrap(f"{code.name}({', '.join(arguments)});", _COLUMNS, subsequent_indent="    ")
        yield from (*(f"    {line}" for line in call), *shown, "}", "")


def _function(start: str, printed: Sequence[Printed], before: Sequence[str], after: Sequence[str]) -> list[str]:
    calls = [f"example_{k}();" for k in range(len(printed))]
    return [start, "{", *(f"    {line}" for line in (*before, *calls, *after)), "}"]


def _array(name: str, values: NDArray[Any], dtype: str) -> Iterator[str]:
    T = _NUMBERS[dtype]
    numbers = ", ".join(c99.number(float(x), dtype) for x in np.asarray(values, dtype))
    yield f"static const {T.name} {name}[{len(values)}] = {{"
    yield from (f"    {line}" for line in textwrap.wrap(numbers, _COLUMNS, break_on_hyphens=False))
    yield "};"
