"""Reparametrisations, clusters of variables, and the tightening of dual bounds."""
