"""Compiling, loading, caching and calling machine code."""
