"""Comparisons: strategies, task orders and swept settings side by side."""
