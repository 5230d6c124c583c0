"""Kernels on NVIDIA cards through the driver alone: no toolkit, no compiler, no package beside NumPy."""
