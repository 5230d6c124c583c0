"""A straight-line program for one thread of a GPU: functions that each compute a part of one state.

A thread finds its inputs in shared memory, where its warp has staged them, or in the caller's arrays. Its results go into
tiles of shared memory, which the warp writes to the caller's array together, so that rows are written in whole sectors.
Results whose tile has no place yet wait in local memory, as do values that cross from one function to another. Long
programs are cut into functions, because the driver's assembler takes more than linear time and runs out of registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qddot.compiler.codegen.llvm.emitter import Emitter, number_bytes
from qddot.compiler.codegen.llvm.memory_plan import crossing, cut
from qddot.compiler.codegen.llvm.thread_arguments import GLOBAL, WARP, Arguments
from qddot.compiler.codegen.llvm.thread_tiles import TILE_BYTES, tile_pitch, tile_plan, together, wide_count
from qddot.compiler.ir.ops import COMPARISONS
from qddot.compiler.ir.program import Program

WHOLE_ROW_MAX_NUMBERS = 64  # results up to this many have a place in shared memory each, and are written at the end


@dataclass(frozen=True)
class ThreadOptions:
    """How a program is laid out for a thread."""

    function_max_ops: int  # operations of one function
    tile_buffers: int  # tiles of results that a warp holds at a time
    is_whole: bool = True  # whether one thread computes the whole result
    # Whether sines, cosines and reciprocals have no branches, and a flag says where angles or divisors are far from one.
    is_near: bool = False
    is_cold: bool = False  # whether it is for states that raise the flag


class ThreadFunction:
    """The k-th function of one part of a program: operands from registers, slots, and where inputs are."""

    def __init__(self, whole: ThreadProgram, k: int) -> None:
        self.whole, self.emitter, self.number = whole, whole.emitter, k
        self.graph = whole.program.graph
        self.nodes, self.own = whole.functions[k], set(whole.functions[k])
        self.lines: list[str] = []
        self.names: dict[int, str] = {}
        self.angles: set[int] = set()
        self.far = ""  # whether an angle or a divisor so far was not near
        self.labels = 0

    def text(self) -> str:
        """The function; the last one also stores the results that no operation computes."""
        for n in self.nodes:
            self._compute(n)
            if n in self.whole.slots:
                self._store(self.names[n], self._slot(n))
            self._store_results(n)
        if self.number == len(self.whole.functions) - 1:
            self._finish()
        if self.far:
            self._raise_flag()
        body = "\n".join(self.lines)
        name, inline = f"{self.whole.name}_{self.number}", " alwaysinline" if self.whole.is_inlined else " noinline"
        return f"define internal void @{name}({self.whole.arguments.parameters}){inline} #1 {{\n{body}\n  ret void\n}}\n"

    def _compute(self, n: int) -> None:
        op, args = self.graph.ops[n], self.graph.args[n]
        if op in ("sin", "cos"):
            value = "" if args[0] in self.angles else self._value(args[0])
            if value and self.whole.options.is_near:
                self._near(args[0], value)
            elif value and self.whole.options.is_cold:
                self._mended(args[0], value)
            self.lines += self.emitter.sine_or_cosine(n, op, args[0], value, self.angles)
        elif self.whole.options.is_near and self._is_reciprocal(n):
            self._reciprocal(n)
        else:
            self.lines += self.emitter.operation(n, op, [self._value(x) for x in args])
        self.names[n] = f"%v{n}"

    def _near(self, angle: int, value: str) -> None:
        self.lines += self.emitter.near_sincos(f"sc{angle}", value)
        self.angles.add(angle)
        self._note_far(f"%sc{angle}")

    def _mended(self, angle: int, value: str) -> None:
        self.lines += self.emitter.near_sincos(f"near{angle}", value)
        self.lines += self.emitter.mended_sincos(f"sc{angle}", value, f"near{angle}")
        self.angles.add(angle)

    def _raise_flag(self) -> None:
        """Says that an angle was not near."""
        self.lines += [
            "  %far.before = load i32, ptr %mem",
            f"  %far.here = zext i1 {self.far} to i32",
            "  %far.now = or i32 %far.before, %far.here",
            "  store i32 %far.now, ptr %mem",
        ]

    def _is_reciprocal(self, n: int) -> bool:
        args = self.graph.args[n]
        return self.graph.ops[n] == "div" and self.graph.ops[args[0]] == "const" and self.graph.args[args[0]] == (1.0,)

    def _reciprocal(self, n: int) -> None:
        """Without the branch that division has for the smallest and the largest numbers."""
        self.lines += self.emitter.near_reciprocal(n, self._value(self.graph.args[n][1]))
        self._note_far(f"%v{n}")

    def _note_far(self, name: str) -> None:
        """Joins %name.far to what was far before."""
        before, self.far = self.far, f"{name}.far"
        if before:
            self.lines.append(f"  {name}.any = or i1 {before}, {name}.far")
            self.far = f"{name}.any"

    def _value(self, n: int) -> str:
        op = self.graph.ops[n]
        if op == "const":
            return self.emitter.const(self.graph.args[n][0])
        if n not in self.names:
            if op in COMPARISONS:  # a comparison is not stored but repeated
                self.lines += self.emitter.operation(n, op, [self._value(x) for x in self.graph.args[n]])
                self.names[n] = f"%v{n}"
            elif n in self.whole.sincos:
                self.names[n] = self._sine_or_cosine(n)
            else:
                self.names[n] = self._input(n) if op == "input" else self._reloaded(n)
        return self.names[n]

    def _sine_or_cosine(self, n: int) -> str:
        """One that was computed before."""
        memory = self.whole.arguments.angle_pointer
        self.lines += [
            f"  %s{n} = getelementptr {self.emitter.T}, {memory} %sc, i64 {self.whole.sincos[n]}",
            f"  %s{n}.x = load {self.emitter.T}, {memory} %s{n}",
        ]
        return f"%s{n}.x"

    def _input(self, n: int) -> str:
        operand, k = self.whole.arguments.input(self.graph.args[n][0])
        lines, at = operand.address(f"%i{n}", k, self.emitter.T)
        is_constant = operand.space == GLOBAL and operand.result_from is None
        invariant = ", !invariant.load !1" if is_constant else ""
        self.lines += [*lines, f"  %i{n}.x = load {self.emitter.T}, {operand.pointer} {at}{invariant}"]
        return f"%i{n}.x"

    def _slot(self, n: int) -> str:
        self.labels += 1
        index = self.whole.options.is_near + self.whole.slots[n]
        self.lines.append(f"  %m{self.labels} = getelementptr {self.emitter.T}, ptr %mem, i64 {index}")
        return f"ptr %m{self.labels}"

    def _reloaded(self, n: int) -> str:
        at = self._slot(n)
        self.lines.append(f"  %r{n} = load {self.emitter.T}, {at}")
        return f"%r{n}"

    def _store(self, value: str, at: str) -> None:
        self.lines.append(f"  store {self.emitter.T} {value}, {at}")

    # ---- results

    def _store_results(self, n: int) -> None:
        """A result where it belongs, and the tiles that are complete with it."""
        whole = self.whole
        if whole.tiles is None:
            for k in whole.places.get(n, ()):
                lines, at = whole.arguments.output.address(f"%o{k}", whole.first + k, self.emitter.T)
                self.lines += lines
                self._store(self._value(n), f"{whole.arguments.output.pointer} {at}")
            return
        for t, place in whole.tiles.stores.get(n, ()):
            if (t, place) not in whole.grouped:
                self._store_in_tile(n, t, place)
        for t, place in whole.groups.get(n, ()):
            self._store_group(t, place)
        for t in whole.tiles.written.get(n, ()):
            self._write(t)

    def _finish(self) -> None:
        if self.whole.tiles is None:
            for n in self.whole.places:
                if n not in self.whole.computed:
                    self._store_results(n)
            return
        if self.whole.is_one_row:
            self._store_late(0)
        for t in self.whole.tiles.written[-1]:
            self._write(t)

    def _store_late(self, t: int) -> None:
        tiles = self.whole.tiles
        for n, place in tiles.late.get(t, ()) if tiles is not None else ():
            self._store_in_tile(n, t, place)

    def _store_in_tile(self, n: int, t: int, place: int) -> None:
        self.labels += 1
        p, index = f"%t{self.labels}", self.whole.tile_at(t) + place
        self.lines.append(f"  {p} = getelementptr {self.emitter.T}, ptr addrspace(3) %tiles, i64 {index}")
        self._store(self._value(n), f"ptr addrspace(3) {p}")

    def _store_group(self, t: int, place: int) -> None:
        """Results side by side, the first of them at this place of a tile, in one store."""
        assert self.whole.tiles is not None
        self.labels += 1
        T, count, start = self.emitter.T, self.whole.group, self.whole.tiles.starts[t] + place
        vector, value = f"<{count} x {T}>", "poison"
        for j in range(count):
            name, x = f"%g{self.labels}.{j}", self._value(self.whole.program.outputs[start + j])
            self.lines.append(f"  {name} = insertelement {vector} {value}, {T} {x}, i32 {j}")
            value = name
        p, index = f"%t{self.labels}", self.whole.tile_at(t) + place
        self.lines.append(f"  {p} = getelementptr {T}, ptr addrspace(3) %tiles, i64 {index}")
        self.lines.append(f"  store {vector} {value}, ptr addrspace(3) {p}, align 16")

    def _write(self, t: int) -> None:
        """The warp writes a tile to its rows; a row of few numbers is written by the kernel."""
        tiles = self.whole.tiles
        if tiles is None or self.whole.is_one_row:
            return
        self._store_late(t)
        self.labels += 1
        w, start = self.labels, self.whole.first + tiles.starts[t]
        row = self.whole.tile_at(t)
        size = tiles.size(t, len(self.whole.program.outputs))
        self.lines += [
            f"  %w{w} = getelementptr {self.emitter.T}, ptr addrspace(1) %to, i64 {start}",
            f"  %w{w}.o = mul i32 %lane, {-self.whole.tile_pitch}",
            f"  %w{w}.t = getelementptr {self.emitter.T}, ptr addrspace(3) %tiles, i64 {row}",
            f"  %w{w}.f = getelementptr {self.emitter.T}, ptr addrspace(3) %w{w}.t, i32 %w{w}.o",
            f"  call void @write_tile(ptr addrspace(3) %w{w}.f, ptr addrspace(1) %w{w}, i64 %to.s, i32 %rows, i32 %lane, "
            f"i32 {size}, ptr %env)",
        ]


class ThreadProgram:
    """A part of a result, from number `first` on, computed by one thread; `arguments` say where numbers are."""

    def __init__(
        self, name: str, program: Program, emitter: Emitter, arguments: Arguments, options: ThreadOptions, first: int = 0
    ) -> None:
        self.name, self.program, self.emitter, self.first, self.arguments = name, program, emitter, first, arguments
        self.options = options
        self.sincos = _columns(program, arguments.angles)
        body = [n for n in program.body if n not in self.sincos]
        self.functions = cut(body, options.function_max_ops)
        self.computed = set(body)
        self.is_inlined = len(self.functions) == 1
        self.places: dict[int, list[int]] = {}
        for k, n in enumerate(program.outputs):
            self.places.setdefault(n, []).append(k)
        self.is_one_row = options.is_whole and arguments.output.size <= WHOLE_ROW_MAX_NUMBERS
        size = number_bytes(emitter.T)
        width = arguments.output.size if self.is_one_row else TILE_BYTES // size
        self.group = 1 if self.is_one_row else wide_count(arguments.output.size, size)
        self.tile_pitch = arguments.output.pitch if self.is_one_row else tile_pitch(arguments.output.size, size)
        self.buffers = 1 if self.is_one_row else options.tile_buffers
        self.tiles = tile_plan(program.outputs, body, width, self.buffers) if arguments.output.staged else None
        home = {n: k for k, nodes in enumerate(self.functions) for n in nodes}
        self.has_spare = not self.is_one_row and self.tiles is not None and self.tiles.needs_spare
        self.groups = together(self.tiles, program.outputs, home, self.group) if self.tiles is not None else {}
        self.grouped = {(t, k + j) for own in self.groups.values() for t, k in own for j in range(self.group)}
        self.slots = crossing(program, self.functions, self.sincos, self._waiting(home))

    def _waiting(self, home: dict[int, int]) -> dict[int, int]:
        """Results that wait for their tile to be written by a later function: which one that is."""
        waiting: dict[int, int] = {}
        if self.tiles is not None:
            of = {t: home.get(n, len(self.functions) - 1) for n, ts in self.tiles.written.items() for t in ts}
            for t, late in self.tiles.late.items():
                for n, _ in late:
                    if n in home and of[t] != home[n]:
                        waiting[n] = max(of[t], waiting.get(n, 0))
        return waiting

    def tile_at(self, t: int) -> int:
        """Where this thread's row of a tile begins, in numbers from %tiles, which is its row of the first buffer.

        A tile that has found no place takes the last buffer, which is for no other.
        """
        assert self.tiles is not None
        spare = 0 if self.is_one_row else self.buffers
        return self.tiles.buffer.get(t, spare) * WARP * self.tile_pitch

    @property
    def scratch(self) -> int:
        """Numbers of local memory; the first one of a program for near angles is the flag."""
        return 1 + max(self.slots.values(), default=-1) + self.options.is_near

    def text(self) -> list[str]:
        """All functions."""
        return [ThreadFunction(self, k).text() for k in range(len(self.functions))]

    def calls(self, given: str) -> list[str]:
        """Lines that compute the part."""
        return [f"  call void @{self.name}_{k}({given})" for k in range(len(self.functions))]


def _columns(program: Program, angles: Sequence[int]) -> dict[int, int]:
    """Where the sines and cosines are that were computed before."""
    graph, at = program.graph, {k: 2 * i for i, k in enumerate(angles)}
    found = {}
    for n in program.body:
        if graph.ops[n] in ("sin", "cos"):
            angle = graph.args[n][0]
            if graph.ops[angle] == "input" and graph.args[angle][0] in at:
                found[n] = at[graph.args[angle][0]] + (graph.ops[n] == "cos")
    return found
