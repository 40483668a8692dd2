"""Figures of graphs, histories and marginals, and HTML of single objects in notebooks.

Figures of comparisons are in `inference_lab.reporting`.
"""
