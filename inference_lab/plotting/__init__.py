"""How single things are shown: graphs, histories and marginals as figures, and HTML in notebooks.

Figures of comparisons are in `inference_lab.reporting`.
"""
