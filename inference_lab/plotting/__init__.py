"""Figures of graphs, histories and marginals.

Figures of comparisons are in `inference_lab.reporting`.
"""
