"""Where code runs: triple, features, lanes."""
