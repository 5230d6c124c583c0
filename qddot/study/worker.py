"""A worker of the engine "local": `python -m qddot.study.worker`, started by the driver and fed through a pipe.

It reads the plan and then pieces from its standard input and writes outcomes to its standard output, each as a length and
a pickle. It unpickles what its own parent sends and nothing else, and ends when the parent does.
"""

from __future__ import annotations

import os
import pickle
import queue
import struct
import sys
import threading
from typing import Any, BinaryIO

LENGTH = struct.Struct("<Q")


def send(pipe: BinaryIO, data: bytes) -> None:
    """A message."""
    pipe.write(LENGTH.pack(len(data)))
    pipe.write(data)
    pipe.flush()


def receive(pipe: BinaryIO) -> bytes | None:
    """The next message; None at the end."""
    head = pipe.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (size,) = LENGTH.unpack(head)
    data = pipe.read(size)
    return data if len(data) == size else None


def limit_memory(limit: int | None) -> None:
    """Lets allocations beyond so many bytes fail, where the system can: then it is a MemoryError of one piece."""
    if limit is None:
        return
    try:
        import resource
    except ImportError:  # Windows
        return
    try:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
    except (OSError, ValueError):
        return


def main() -> None:
    """Computes until the parent closes the pipe."""
    incoming = os.fdopen(os.dup(0), "rb")
    outgoing = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a user's function prints goes to standard error
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    messages: queue.Queue[bytes] = queue.Queue()

    def read() -> None:
        while (data := receive(incoming)) is not None:
            messages.put(data)
        os._exit(0)  # the parent is gone, or wants no more: also in the middle of a piece

    threading.Thread(target=read, daemon=True).start()
    threads, memory, luggage = pickle.loads(messages.get())
    from qddot.compiler.runtime.threads import set_num_threads
    from qddot.study.luggage import unpacked

    set_num_threads(threads)
    limit_memory(memory)
    try:
        plan = unpacked(luggage)
    except BaseException as error:
        send(outgoing, pickle.dumps(f"{type(error).__name__}: {error}"))
        return
    send(outgoing, pickle.dumps(None))
    while True:
        piece = pickle.loads(messages.get())
        answer: Any = plan.evaluate(piece)
        send(outgoing, pickle.dumps(answer, protocol=pickle.HIGHEST_PROTOCOL))


if __name__ == "__main__":
    sys.modules.setdefault("qddot.study.worker", sys.modules["__main__"])
    main()
