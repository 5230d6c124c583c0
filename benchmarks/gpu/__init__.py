"""Kernels on a graphics card: states a second by batch size, beside the roofline; `python -m benchmarks.gpu`.

One process asks, others do the work, so that a kernel that hangs or breaks its context ends a process and not the run:
`prepare` compiles one kernel and computes what is expected of it, many at a time; `measure` has the card and measures one
case after another. `run` has the run, `tune` the search among layouts.
"""
