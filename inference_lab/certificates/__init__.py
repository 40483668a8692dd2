"""Minimum sum-of-squares clustering with pairs: local search, lower bounds and certificates."""
