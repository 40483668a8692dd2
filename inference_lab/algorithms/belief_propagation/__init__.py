"""Passing messages on any graph: the layout in memory, in which order, and what they tell."""
