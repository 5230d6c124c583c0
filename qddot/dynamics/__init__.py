"""Which algorithm computes what: trace, choose, compile, evaluate."""
