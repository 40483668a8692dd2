"""Orders in which variables are eliminated."""
