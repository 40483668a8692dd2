"""Studies that come with the library: their definitions, and in the repository their results."""
