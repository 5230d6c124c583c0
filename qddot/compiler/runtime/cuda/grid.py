"""What generated code for a grid says about itself: the launch contract between code generation and the runtime.

A module has the function `rows`, and `strided` where `has_strided`. `rows` takes operands whose numbers of one state are
contiguous in C order; `strided` takes any strides. Both have the same parameters, each of 64 bits: the count of states;
for each input and then for the output a pointer, the stride from one state to the next, and one stride for each axis of a
state; last, a pointer to scratch memory. Strides are in numbers, may be negative, and 0 from one state to the next where
all states share an input.

A block has `threads` threads along x, and the grid `groups` blocks along y, which share the work of the same states.
Of these, `warps_per_state` warps share the work of the same 32 states, so that a block computes `states` at a time.
Along x there may be fewer blocks than `count / states`: each goes on to the states `gridDim.x * states` further.

Scratch memory has `scratch_numbers` numbers of the kernel's type for each thread of the grid,
`gridDim.x * groups * threads` of them; how they lie in it is up to the code. The pointer is null if there are none.

A kernel may be of several modules. All are launched with the same arguments, one after another, and each writes its part
of the results, or leaves `kept_numbers` numbers of each state in scratch memory for the next ones: of 32 states the first
number, then of the same states the second one, and so on. Where `modules` says so, blocks along y and shared memory differ
from module to module. A kernel may have other modules for contiguous rows, for small batches or for large ones.
"""

from __future__ import annotations

from typing import Any, NamedTuple

ROWS, STRIDED = "rows", "strided"  # functions of a module
WARP = 32  # threads; and states of a tile
MAX_BLOCK_THREADS = 1024
STEP_THREADS = 128  # of a block of a loop over time
MAX_GROUPS = 65535  # of gridDim.y
SMALL_BATCH_MAX_STATES = 4096  # for which a kernel's other code is taken, if it has some; by times on an H200


class ModuleFacts(NamedTuple):
    """What one module of a kernel has of its own."""

    groups: int
    shared_bytes: int


class Grid(NamedTuple):
    """Facts about the code of a kernel that a launch needs."""

    threads: int  # of a block, a multiple of WARP
    shared_bytes: int = 0  # dynamic shared memory of a block
    groups: int = 1  # gridDim.y: threads of a state
    scratch_numbers: int = 0  # global memory of a thread
    has_strided: bool = False
    warps_per_state: int = 1  # of a block, which share the work of the same states
    kept_numbers: int = 0  # global memory of a state, from one module to the next
    modules: tuple[ModuleFacts, ...] = ()  # of each module, where they differ

    def checked(self) -> Grid:
        """The same, or a ValueError that says what cannot be."""
        numbers = [self.threads, self.shared_bytes, self.groups, self.scratch_numbers, self.warps_per_state]
        numbers += [self.kept_numbers, *(x for own in self.modules for x in own)]
        if any(isinstance(x, bool) or not isinstance(x, int) or x < 0 for x in numbers):
            raise ValueError(f"{self} holds something else than counts")
        if self.threads % WARP or not 0 < self.threads <= MAX_BLOCK_THREADS:
            raise ValueError(f"{self.threads} threads a block; it must be a multiple of {WARP} up to {MAX_BLOCK_THREADS}")
        if not all(0 < x <= MAX_GROUPS for x in (self.groups, *(own.groups for own in self.modules))):
            raise ValueError(f"{self.groups} groups; it must be 1 to {MAX_GROUPS}")
        if not self.warps_per_state or self.threads % (WARP * self.warps_per_state):
            raise ValueError(f"{self.warps_per_state} warps a state; it must divide the warps of a block")
        if self.has_strided not in (False, True):
            raise ValueError(f"has_strided={self.has_strided!r} is neither true nor false")
        return self

    def of_module(self, k: int) -> Grid:
        """The facts of the k-th module."""
        return self._replace(**self.modules[k]._asdict()) if self.modules else self

    @property
    def states(self) -> int:
        """That a block computes at a time."""
        return self.threads // self.warps_per_state

    @property
    def threads_per_state(self) -> int:
        """In all blocks."""
        return self.groups * self.warps_per_state

    def as_json(self) -> dict[str, Any]:
        """For the header of an entry of the cache."""
        return self._asdict()


def from_json(x: Any) -> Grid:
    """What `Grid.as_json` gave, or a ValueError or TypeError (a reader for `stored.Fields`)."""
    if not isinstance(x, dict):
        raise TypeError(f"{x!r} is not a table")
    modules = tuple(ModuleFacts(*own) for own in x.get("modules", ()))
    return Grid(**{**x, "modules": modules}).checked()
