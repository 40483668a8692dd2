"""The registries, which build objects from specs."""
