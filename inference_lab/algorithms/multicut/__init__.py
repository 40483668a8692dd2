"""Partitions of signed graphs into any number of clusters: local search and bounds."""
