"""Algorithms shared by several solvers; they import neither solvers nor the registry."""
