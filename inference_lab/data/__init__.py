"""Real data, found and checked."""
