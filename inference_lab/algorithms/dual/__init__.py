"""Reparametrisations, clusters of variables, and how bounds of them are tightened."""
