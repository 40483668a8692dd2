"""The harness: campaigns of runs, each in a process of its own, each ending as a record."""
