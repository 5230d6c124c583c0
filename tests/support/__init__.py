"""What tests share: mechanisms, states, tolerances, ways to compile, robots of other packages, where things are."""
