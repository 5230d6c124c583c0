"""The tests, in folders like the rooms of the package, with what they share in `tests.support`."""
