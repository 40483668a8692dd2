"""The semidefinite relaxation of an energy."""
