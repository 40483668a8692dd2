"""Studies that come with the library: their definitions, and in the repository their results.

The modules here are data and methods that one of these studies alone needs.
"""
