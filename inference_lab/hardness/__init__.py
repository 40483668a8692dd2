"""What of a graph says how hard it is, and what the records of a study say of such graphs."""
