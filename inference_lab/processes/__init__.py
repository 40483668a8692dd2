"""Calls in processes of their own: under limits, watched, and ended with all they started."""
