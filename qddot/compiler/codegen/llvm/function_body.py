"""One function of straight-line code as LLVM text: where its values come from, and where they go.

What other functions compute, inputs, sines and cosines are in memory. LLVM would load a value once and, when registers run
out, store it elsewhere and load it again from there. So a value that was not used for a while is loaded again from where
it is, through a pointer of which LLVM does not know that it is the same. For whole lines of memory there is a pointer to
every 256 of them as well: an instruction that names a place within 128 lines of its pointer is three bytes shorter.

Inputs come as columns of lanes, or, where the core says so, as the rows that the caller has: then four columns are made
where the first of them is used, and only those that other functions use as well are stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qddot.compiler.codegen.llvm.lazy_inputs import InputTile
from qddot.compiler.codegen.llvm.transpose import four_columns
from qddot.compiler.ir.ops import LEAVES

if TYPE_CHECKING:
    from qddot.compiler.codegen.llvm.straight_line import Core

AGAIN = 50  # operations after which a value is loaded again instead of being kept

_LINE, _REACH = 64, 256  # bytes of a line, and how many lines one pointer reaches

Place = tuple[str, int]  # which memory, and the number there


class Chunk:
    """The k-th function, of some nodes."""

    def __init__(self, core: Core, k: int, nodes: list[int]) -> None:
        self.core, self.number, self.nodes, self.own = core, k, nodes, set(nodes)
        self.graph = core.straight.graph
        self.lines: list[str] = []
        self.names: dict[int, str] = {}  # of values that are at hand
        self.used: dict[int, int] = {}  # when each of them was used last
        self.pairs: dict[int, str] = {}
        self.pointers: dict[Place, tuple[str, int]] = {}  # by memory and reach: their names, and since when
        self.now = self.since = 0
        self.labels = 0

    def text(self, name: str, last: bool) -> str:
        """The function; the last one also stores the results that no function computes."""
        for k, n in enumerate(self.nodes):
            self.now = k
            self.since = self.now // AGAIN
            self._ask(n)
            self._compute(n)
            if n in self.core.slots:
                self._store(f"%v{n}", ("mem", self.core.slots[n]))
            self._keep(n)
            self._write(n)
        if last:
            self._finish()
        pointers = "ptr noalias %in, ptr noalias %sc, ptr %mem, ptr %out, ptr %env"
        pointers += self.core.more
        body = "\n".join(self.lines)
        return f"define internal void @{name}({pointers}) {{\n{body}\n  ret void\n}}\n"

    def _ask(self, n: int) -> None:
        """Asks for the memory that is due before this operation."""
        for i, line in self.core.fetches.get(n, ()):
            self.lines.append(f"  %f{i}_{line} = getelementptr i8, ptr %ahead{i}, i64 {64 * line}")
            self.lines.append(f"  call void @llvm.prefetch.p0(ptr %f{i}_{line}, i32 0, i32 {self.core.level}, i32 1)")

    def _compute(self, n: int) -> None:
        op, args, V = self.graph.ops[n], self.graph.args[n], self.core.V
        if op in ("sin", "cos"):
            angle = args[0]
            if angle not in self.pairs:
                self.pairs[angle] = self.core.inline_sincos(self.lines, self._value(angle), angle)
            self.lines.append(f"  %v{n} = extractvalue {{ {V}, {V} }} {self.pairs[angle]}, {int(op == 'cos')}")
        else:
            self.lines += self.core.operation(n, op, [self._value(x) for x in args])
        self.names[n], self.used[n] = f"%v{n}", self.now

    def _value(self, n: int) -> str:
        op = self.graph.ops[n]
        if op == "const":
            return self.core.const(self.graph.args[n][0])
        tile = self.core.input_tiles.get(n)
        if tile is not None and tile.chunk == self.number:
            if n not in self.names:
                self._transpose(tile)
            return self.names[n]
        stored = op != "less" and (n not in self.own or n in self.core.slots)
        old = stored and self.now - self.used.get(n, self.now) > AGAIN
        self.used[n] = self.now
        if n not in self.names and op == "less":  # a comparison has no place in memory
            self.lines += self.core.operation(n, op, [self._value(x) for x in self.graph.args[n]])
            self.names[n] = f"%v{n}"
        elif n not in self.names or old:
            same = "" if n in self.own else ", !invariant.load !1"
            place = self._pointer(self.core.place(n), again=True)
            self.names[n] = f"{place}.x"
            self.lines.append(f"  {place}.x = load {self.core.V}, ptr {place}, align {self.core.align}{same}")
        return self.names[n]

    def _transpose(self, tile: InputTile) -> None:
        """Makes the columns of a tile from the rows before those that come next."""
        t = f"x{tile.operand}_{tile.start}"
        for r in range(8):
            place = tile.start + tile.row * (r - 8)
            self.lines.append(f"  %{t}.p{r} = getelementptr double, ptr %ahead{tile.operand}, i64 {place}")
        four_columns(self.lines, t)
        for c, n in tile.nodes.items():
            self.names[n] = f"%{t}.c{c}"
            if n in tile.later:
                self._store(self.names[n], self.core.place(n))

    def _write(self, n: int) -> None:
        """Writes the tiles of the result that are complete after this operation."""
        for t in self.core.tiles.get(n, ()):
            self.lines += self.core.write(t)

    def _finish(self) -> None:
        """Stores the results that no function computes, and writes the tiles that are left."""
        for n in self.core.homes if self.core.ring is None else ():
            if self.graph.ops[n] in LEAVES or n in self.core.ready:
                self._keep(n)
        for t in self.core.tiles.get(-1, ()):
            for k in range(8 * t, 8 * t + 8):
                n = self.core.straight.outputs[k]
                if self.graph.ops[n] in LEAVES or n in self.core.ready:
                    self._store(self._value(n), ("out", self.core.column(k)))
            self.lines += self.core.write(t)

    def _keep(self, n: int) -> None:
        """Stores a result, in every column that has it."""
        for j in sorted(self.core.homes.get(n, ())):
            self._store(self._value(n), ("out", j))

    def _store(self, number: str, place: Place) -> None:
        pointer = self._pointer(place)
        self.lines.append(f"  store {self.core.V} {number}, ptr {pointer}, align {self.core.align}")

    def _pointer(self, place: Place, again: bool = False) -> str:
        """A pointer to a place; with `again` LLVM does not know of those made a while before that they are the same."""
        self.labels += 1
        p, (memory, index) = f"%p{self.labels}", place
        reach = (index + _REACH // 2) // _REACH if self.core.align == _LINE else 0
        base = self._base((memory, reach), again)
        self.lines.append(f"  {p} = getelementptr {self.core.V}, ptr {base}, i64 {index - _REACH * reach}")
        return p

    def _base(self, which: Place, again: bool) -> str:
        memory, reach = which
        name, since = self.pointers.get(which, ("", 0))
        if name and (since == self.since or not again):
            return name
        self.labels += 1
        new = f"%b{self.labels}"
        if not name and reach == 0 and self.since == 0:
            new = f"%{memory}"
        elif not name:
            self.lines.append(f"  {new}.w = getelementptr {self.core.V}, ptr %{memory}, i64 {_REACH * reach}")
            name = f"{new}.w"
        if new != f"%{memory}":
            self.lines.append(f'  {new} = call ptr asm "", "=r,0"(ptr {name})')
        self.pointers[which] = new, self.since
        return new
