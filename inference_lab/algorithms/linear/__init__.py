"""Linear programs of energies, their solvers, and cuts."""
