"""Variable elimination: orders, bucket elimination, and reductions of graphs."""
