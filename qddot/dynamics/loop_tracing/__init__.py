"""From the readable algorithm to rolled code: its loops over the links, run once for each kind of link.

Links are of one kind if their joints are of one kind and the same of their numbers are zero or one. The algorithm runs on a
model that has one link of each kind, all on the world, whose other numbers are columns with an entry for every real link
of that kind. Each of its loops over `model.outward()` or `model.inward()` becomes a sweep, each link of it the segment of
a kind. What an algorithm reads from or adds to `quantity[p]`, the parent's, goes through memory; so does what one loop
computes and a later one uses. All else, the algebra included, is as in straight-line code.

A sum over all links (`model.total`) is memory that all rows have in common; so is what one link computes and others need.
Where an algorithm is about one frame, the rows are the links that carry it, or all links, and those that carry it are
of a kind of their own; so is the link that one scalar belongs to.

A loop over `model.columns()`, with one over `model.path_to_base(p)` in it, becomes a climb: from the link of each
column of a matrix through all that carry it. What is on its way to the base is one quantity of links; matrices are
written as it goes.

`model.by_columns` repeats the sweeps of a recursion for each unit vector over the DoF or over the links' inertias.

What joints that share a coordinate write is added up (`shared`).

An algorithm can be rolled if it has no other nested loops, and links meet only through their parents and such sums.
"""

from qddot.dynamics.loop_tracing.trace import links_by_kind, roll

__all__ = ["links_by_kind", "roll"]
