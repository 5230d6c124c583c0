"""Arithmetic as data: expressions, rules, programs, and their interpreter."""
