"""Where code runs: architecture, processor, features, lanes; how it is compiled, and what the cache tells apart."""
