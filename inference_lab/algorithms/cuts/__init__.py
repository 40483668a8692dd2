"""Maximum flows, partial optimality, and large moves."""
