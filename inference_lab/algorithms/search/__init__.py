"""Search over integer cost functions with soft arc consistency."""
