"""Records of runs and comparisons, and the statistics over them."""
