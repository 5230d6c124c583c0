"""Arithmetic as data: traced once, simplified, and turned into machine code. Knows nothing about robots."""
