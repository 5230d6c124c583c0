"""Object code for ARM64 Linux as a program that an emulator runs: it calls `loop` once and writes its result to stdout.

There is no ARM linker and no C library in it: sections are laid out and relocated here, and what starts the program and
writes is eighteen instructions.
"""

import struct

import numpy as np

BASE = 0x400000
_HEADER, _SECTION, _SYMBOL, _RELA = (struct.Struct(x) for x in ("<16sHHIQQQIHHHHHH", "<IIQQQQIIQQ", "<IBBHQQ", "<QQq"))
_ALLOCATED, _BITS, _RELOCATIONS, _SYMBOLS = 2, 1, 4, 2
_PREL32, _ADR_PAGE, _ADD_LOW, _JUMP, _CALL = 261, 275, 277, 282, 283
_LOAD_LOW = {278: 0, 284: 1, 285: 2, 286: 3, 299: 4}  # LDST8…LDST128_ABS_LO12_NC: log2 of the access


def program(data: bytes, inputs: list[np.ndarray], output: tuple[int, ...]) -> bytes:
    """An executable that computes kernel(*inputs), an array of doubles of this shape, and writes its bytes."""
    assert inputs
    memory = bytearray(4096)  # the ELF header, and the start at 256
    place, functions = _linked(memory, data)
    out = np.zeros(output)
    arrays = [np.ascontiguousarray(x, float) for x in (*inputs, out)]
    args, dims, steps, env = (_reserve(memory, 8 * n) for n in (len(arrays), 1, 64, 16))
    addresses = [_put(memory, a.tobytes()) for a in arrays]
    strides = [a.strides[0] for a in arrays] + [s for a in arrays for s in a.strides[1:]]
    for at, numbers in ((args, [BASE + a for a in addresses]), (dims, [len(out)]), (steps, strides)):
        struct.pack_into(f"<{len(numbers)}q", memory, at, *numbers)
    struct.pack_into("<q", memory, env + 8 * 8, BASE + env + 8 * 15)  # the count of invalid calls; all results are streamed
    _start(memory, [args, dims, steps, env], functions["loop"], addresses[-1], out.nbytes)
    identity = b"\x7fELF\x02\x01\x01" + bytes(9)
    _HEADER.pack_into(memory, 0, identity, 2, 183, 1, BASE + 256, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    struct.pack_into("<IIQQQQQQ", memory, 64, 1, 7, 0, BASE, BASE, len(memory), len(memory), 4096)
    assert place
    return bytes(memory)


def _put(memory, content, align=64):
    at = -(-len(memory) // align) * align
    memory.extend(bytes(at - len(memory)) + bytes(content))
    return at


def _reserve(memory, size):
    return _put(memory, bytes(size))


def _linked(memory, data):
    """Puts the sections of an object into memory: where each is, and where its functions are."""
    header = _HEADER.unpack_from(data)
    table, count = header[6], header[12]
    sections = [_SECTION.unpack_from(data, table + k * _SECTION.size) for k in range(count)]
    place = {}
    for k, (_, kind, flags, _, offset, size, _, _, align, _) in enumerate(sections):
        if flags & _ALLOCATED and kind == _BITS:
            place[k] = _put(memory, data[offset : offset + size], max(align, 1))
    (symtab,) = (s for s in sections if s[1] == _SYMBOLS)
    symbols = list(_SYMBOL.iter_unpack(data[symtab[4] : symtab[4] + symtab[5]]))
    names = sections[symtab[6]][4]
    for section in sections:
        if section[1] == _RELOCATIONS and section[7] in place:
            for offset, info, addend in _RELA.iter_unpack(data[section[4] : section[4] + section[5]]):
                _, _, _, home, value, _ = symbols[info >> 32]
                _relocate(memory, info & 0xFFFFFFFF, place[section[7]] + offset, place[home] + value + addend)
    functions = {}
    for name, kind, _, home, value, _ in symbols:
        if kind == 0x12:
            end = data.index(b"\0", names + name)
            functions[data[names + name : end].decode()] = place[home] + value
    return place, functions


def _relocate(memory, kind, here, there):
    (word,) = struct.unpack_from("<I", memory, here)
    if kind == _PREL32:
        word = (there - here) & 0xFFFFFFFF
    elif kind == _ADR_PAGE:
        pages = ((BASE + there) >> 12) - ((BASE + here) >> 12)
        word |= (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5
    elif kind == _ADD_LOW or kind in _LOAD_LOW:
        word |= ((BASE + there & 0xFFF) >> _LOAD_LOW.get(kind, 0)) << 10
    elif kind in (_CALL, _JUMP):
        word |= (there - here) >> 2 & 0x3FFFFFF
    else:
        raise ValueError(f"relocation {kind}")
    struct.pack_into("<I", memory, here, word)


def _start(memory, arguments, function, result, size):
    """loop(args, dims, steps, env); write(1, result, size); exit(0)."""

    def number(register, value):  # movz, movk
        return [0xD2800000 | (value & 0xFFFF) << 5 | register, 0xF2A00000 | (value >> 16 & 0xFFFF) << 5 | register]

    code = [x for k, at in enumerate(arguments) for x in number(k, BASE + at)]
    code.append(0x94000000 | (function - 256 - 4 * len(code)) >> 2 & 0x3FFFFFF)
    for values in ((1, BASE + result, size, 64), (0, 0, 0, 93)):
        for register, value in zip((0, 1, 2, 8), values, strict=True):
            code += number(register, value)
        code.append(0xD4000001)  # svc
    struct.pack_into(f"<{len(code)}I", memory, 256, *code)
