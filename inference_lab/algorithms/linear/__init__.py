"""The linear program of an energy, the programs that solve it, and its cuts."""
