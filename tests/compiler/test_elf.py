"""The loader of object code: whatever the object is, it is loaded or refused with an ObjectError; nothing is read or
written outside of it.

Mutated objects are loaded in a child process, which would die instead of this one; none of them is run.
"""

import random
import struct
import subprocess
import sys
import time

import pytest

import qddot
from qddot.compiler.runtime import loader
from qddot.compiler.targets.host import architecture
from qddot.compiler.targets.target import X86
from qddot.errors import ObjectError, QddotError

pytestmark = pytest.mark.skipif(sys.platform != "linux" or architecture() != X86, reason="other systems take LLVM's loader")

SECTION, SYMBOL, RELOCATION = struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ"), struct.Struct("<QQq")
NAME, KIND, FLAGS, ADDRESS, OFFSET, SIZE, LINK, INFO, ALIGN, ENTRY = range(10)
TABLE_AT, COUNT_AT = 0x28, 0x3C


@pytest.fixture(scope="module")
def data() -> bytes:
    """The object code of a kernel that has everything: constants, calls, several sections."""
    found, real = [], loader.Image.__init__

    def watched(self, data):
        found.append(bytes(data))
        real(self, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loader.Image, "__init__", watched)
        qddot.load("scara").kernel("inverse_dynamics")
    return found[0]


class Object:
    """An object that can be changed, field by field."""

    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)
        self.table, self.count = *struct.unpack_from("<Q", data, TABLE_AT), *struct.unpack_from("<H", data, COUNT_AT)

    def section(self, k: int) -> list[int]:
        return list(SECTION.unpack_from(self.data, self.table + k * SECTION.size))

    def find(self, kind: int, flags: int = 0) -> int:
        return next(
            k for k in range(self.count) if self.section(k)[KIND] == kind and self.section(k)[FLAGS] & flags == flags
        )

    def change(self, k: int, field: int, value: int) -> bytes:
        section = self.section(k)
        section[field] = value
        SECTION.pack_into(self.data, self.table + k * SECTION.size, *section)
        return bytes(self.data)

    def change_entry(self, k: int, form: struct.Struct, number: int, field: int, value: int) -> bytes:
        at = self.section(k)[OFFSET] + number * form.size
        entry = list(form.unpack_from(self.data, at))
        entry[field] = value
        form.pack_into(self.data, at, *entry)
        return bytes(self.data)

    def entries(self, k: int, form: struct.Struct) -> list[tuple[int, ...]]:
        section = self.section(k)
        return list(form.iter_unpack(self.data[section[OFFSET] : section[OFFSET] + section[SIZE]]))

    def loop(self) -> int:
        """The number of the symbol `loop`."""
        symbols, strings = self.find(2), self.section(self.section(self.find(2))[LINK])
        names = bytes(self.data[strings[OFFSET] : strings[OFFSET] + strings[SIZE]])
        return next(k for k, s in enumerate(self.entries(symbols, SYMBOL)) if names[s[0] :].startswith(b"loop\0"))

    def relocations(self) -> int:
        """The section of references out of the code."""
        return next(
            k for k in range(self.count) if self.section(k)[KIND] == 4 and self.section(self.section(k)[INFO])[FLAGS] & 4
        )


def test_the_object_itself_is_loaded(data):
    assert {"loop", "call"} <= set(loader.Image(data).functions)


BITS, CODE = (1, 2), (1, 6)
CASES = {
    "nothing": (lambda o: b"", "too few"),
    "half a header": (lambda o: bytes(o.data[:40]), "too few"),
    "another format": (lambda o: b"MZ" + bytes(o.data[2:]), "not an ELF object"),
    "32 bits": (lambda o: o.data[:4] + b"\x01" + o.data[5:], "not an ELF object"),
    "big-endian": (lambda o: o.data[:5] + b"\x02" + o.data[6:], "not an ELF object"),
    "another machine": (lambda o: o.data[:18] + b"\xb7" + o.data[19:], "not an ELF object"),
    "a program": (lambda o: o.data[:16] + b"\x02" + o.data[17:], "not an ELF object"),
    "half a file": (lambda o: bytes(o.data[: len(o.data) // 2]), "does not fit"),
    "a table at the end": (lambda o: o.data[:40] + struct.pack("<Q", 2**64 - 1) + o.data[48:], "does not fit"),
    "too many sections": (lambda o: o.data[:60] + b"\xff\xff" + o.data[62:], "does not fit"),
    "sections of one byte": (lambda o: o.data[:58] + b"\x01\x00" + o.data[60:], "does not fit"),
    "content beyond the file": (lambda o: o.change(o.find(*CODE), OFFSET, 2**63), "beyond the end"),
    "content longer than the file": (lambda o: o.change(o.find(*CODE), SIZE, len(o.data) + 1), "beyond"),
    "a terabyte of zeros": (lambda o: _zeros(o, 2**40), "are the most"),
    "an alignment of three": (lambda o: o.change(o.find(*CODE), ALIGN, 3), "aligned to 3"),
    "an alignment of a gigabyte": (lambda o: o.change(o.find(*CODE), ALIGN, 2**30), "aligned to"),
    "no symbols": (lambda o: o.change(o.find(2), KIND, 1), "0 tables of symbols"),
    "symbols of 23 bytes": (lambda o: o.change(o.find(2), ENTRY, 23), "entries of 24"),
    "symbols of no bytes": (lambda o: o.change(o.find(2), ENTRY, 0), "entries of 24"),
    "half a symbol": (lambda o: o.change(o.find(2), SIZE, o.section(o.find(2))[SIZE] - 1), "entries of 24"),
    "symbols beyond the file": (lambda o: o.change(o.find(2), OFFSET, len(o.data)), "beyond the end"),
    "names in no section": (lambda o: o.change(o.find(2), LINK, 2**32 - 1), "holds no names"),
    "names in the code": (lambda o: o.change(o.find(2), LINK, o.find(*CODE)), "holds no names"),
    "a name beyond the names": (
        lambda o: o.change_entry(o.find(2), SYMBOL, o.loop(), 0, 2**32 - 1),
        "outside of the names",
    ),
    "a function beyond the code": (
        lambda o: o.change_entry(o.find(2), SYMBOL, o.loop(), 4, 2**62),
        "outside of its section",
    ),
    "a function among data": (
        lambda o: (
            o.change_entry(o.find(2), SYMBOL, o.loop(), 3, _data(o)),
            o.change_entry(o.find(2), SYMBOL, o.loop(), 4, 0),
        )[1],
        "outside of executable code",
    ),
    "a reference to no symbol": (
        lambda o: o.change_entry(o.relocations(), RELOCATION, 0, 1, (2**31 << 32) | 2),
        "there are",
    ),
    "an unknown reference": (lambda o: _kind(o, 77), "unknown kind 77"),
    "a reference at the end": (
        lambda o: o.change_entry(o.relocations(), RELOCATION, 0, 0, o.section(o.section(o.relocations())[INFO])[SIZE] - 3),
        "outside of its section",
    ),
    "a reference far away": (lambda o: o.change_entry(o.relocations(), RELOCATION, 0, 0, 2**63), "outside of its section"),
    "a reference to far away": (lambda o: o.change_entry(o.relocations(), RELOCATION, 0, 2, 2**40), "goes beyond"),
    "a reference to before": (lambda o: o.change_entry(o.relocations(), RELOCATION, 0, 2, -(2**40)), "goes beyond"),
    "a reference to the outside": (lambda o: _undefined(o), "outside of itself"),
    "references without addends": (lambda o: o.change(o.relocations(), KIND, 9), "without addends"),
    "references of 16 bytes": (lambda o: o.change(o.relocations(), ENTRY, 16), "entries of 24"),
}


def _data(o: Object) -> int:
    return next(k for k in range(o.count) if o.section(k)[KIND] == 1 and o.section(k)[FLAGS] & 6 == 2)


def _kind(o: Object, kind: int) -> bytes:
    info = o.entries(o.relocations(), RELOCATION)[0][1]
    return o.change_entry(o.relocations(), RELOCATION, 0, 1, (info >> 32 << 32) | kind)


def _undefined(o: Object) -> bytes:
    number = o.entries(o.relocations(), RELOCATION)[0][1] >> 32
    return o.change_entry(o.find(2), SYMBOL, number, 3, 0)


def _zeros(o: Object, size: int) -> bytes:
    k = _data(o)
    o.change(k, KIND, 8)
    return o.change(k, SIZE, size)


@pytest.mark.parametrize(("broken", "says"), CASES.values(), ids=CASES)
def test_a_broken_object_is_refused_with_the_reason(data, broken, says):
    with pytest.raises(ObjectError, match=says) as caught:
        loader.Image(bytes(broken(Object(data))))
    assert isinstance(caught.value, QddotError)


# ---- mutated objects -------------------------------------------------------------------------------------------------


def mutated(good: bytes, random_numbers: random.Random) -> bytes:
    """The object with a few faults: in its tables more often than in its code, with numbers that are often on the edge."""
    r, o = random_numbers, Object(good)
    edges = (
        0,
        1,
        2,
        3,
        7,
        8,
        23,
        24,
        25,
        63,
        64,
        2**15,
        2**16 - 1,
        2**31 - 1,
        2**31,
        2**32 - 1,
        2**63 - 1,
        2**63,
        2**64 - 1,
    )
    for _ in range(r.choice((1, 1, 1, 2, 4))):
        what = r.randrange(7)
        if what == 0:  # any byte
            o.data[r.randrange(len(o.data))] = r.randrange(256)
        elif what == 1:  # a byte of the header
            o.data[r.randrange(64)] = r.randrange(256)
        elif what == 2:  # a field of a section
            k, field = r.randrange(o.count), r.randrange(10)
            now = o.section(k)[field]
            value = r.choice((*edges, now + 1, max(now - 1, 0), now * 2, len(o.data), len(o.data) - 1, r.randrange(2**64)))
            width = 32 if field in (NAME, KIND, LINK, INFO) else 64
            o.change(k, field, value % 2**width)
        elif what == 3:  # a field of a symbol or a reference
            kind, form = r.choice(((2, SYMBOL), (4, RELOCATION)))
            k = r.choice([k for k in range(o.count) if o.section(k)[KIND] == kind] or [None])
            if k is not None and o.section(k)[OFFSET] + form.size <= len(o.data):
                most = (len(o.data) - o.section(k)[OFFSET]) // form.size
                at = o.section(k)[OFFSET] + form.size * r.randrange(max(1, min(most, o.section(k)[SIZE] // form.size)))
                size = r.choice((1, 2, 4, 8))
                place = at + r.randrange(form.size - size + 1)
                o.data[place : place + size] = (r.choice(edges) % 2 ** (8 * size)).to_bytes(size, "little")
        elif what == 4:  # an end that is missing
            del o.data[r.randrange(64, len(o.data)) :]
            break
        elif what == 5:  # a piece in the place of another
            size = r.randrange(1, 200)
            a, b = r.randrange(len(o.data) - size), r.randrange(len(o.data) - size)
            o.data[a : a + size] = o.data[b : b + size]
        else:  # one section's description for another
            a, b = r.randrange(o.count), r.randrange(o.count)
            SECTION.pack_into(o.data, o.table + a * SECTION.size, *o.section(b))
        o.count = min(o.count, max(1, (len(o.data) - o.table) // SECTION.size))
    return bytes(o.data)


CHILD = """
import faulthandler, resource, struct, sys
faulthandler.enable()
from qddot.compiler.runtime.loader import IMAGE_MAX_BYTES, Image
from qddot.errors import ObjectError
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
loaded = refused = number = 0
while size := sys.stdin.buffer.read(8):
    number += 1
    data = sys.stdin.buffer.read(*struct.unpack("<Q", size))
    try:
        image = Image(data)
        assert len(image._map) <= IMAGE_MAX_BYTES
        for address in image.functions.values():
            assert image._base <= address < image._base + len(image._map)
        loaded += 1
    except ObjectError as error:
        assert str(error)
        refused += 1
    except BaseException as error:
        print(f"object {number}: {error!r}", file=sys.stderr)
        raise
print(loaded, refused)
"""


def load_mutated(data: bytes, count: int, seed: int) -> tuple[int, int]:
    """How many of so many mutated objects are loaded, and how many are refused, in a child process."""
    numbers = random.Random(seed)
    objects = (mutated(data, numbers) for _ in range(count))
    given = b"".join(struct.pack("<Q", len(o)) + o for o in objects)
    done = subprocess.run([sys.executable, "-c", CHILD], input=given, capture_output=True, timeout=500)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    loaded, refused = map(int, done.stdout.split())
    assert loaded + refused == count
    return loaded, refused


def test_mutated_objects_do_not_crash_the_loader(data):
    loaded, refused = load_mutated(data, 400, seed=1)
    assert loaded > 40  # faults in the code itself are not the loader's to find
    assert refused > 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_ten_thousand_mutated_objects(data, seed):
    loaded, refused = load_mutated(data, 2000, seed=100 + seed)
    assert loaded > 200
    assert refused > 500


def test_loading_is_quick(data):
    seconds = []
    for _ in range(10):
        begin = time.perf_counter()
        loader.Image(data)
        seconds.append(time.perf_counter() - begin)
    assert min(seconds) < 5e-3  # the least of many, since the machine is shared; a cached kernel has 10 ms for all of it
