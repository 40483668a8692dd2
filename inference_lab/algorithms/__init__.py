"""What several methods are made of; nothing here knows a solver or the registry."""
