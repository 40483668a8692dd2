"""Records of runs and their analysis, without rendering."""
