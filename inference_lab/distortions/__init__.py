"""Costs of points in clusters, the algebra of points, and the metrics learnt on them."""
