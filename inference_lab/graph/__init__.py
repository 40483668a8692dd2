"""The energy every method minimises, its terms, and the one evaluator."""
