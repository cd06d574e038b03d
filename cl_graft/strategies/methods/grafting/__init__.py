"""Grafting, its ablations, and grafting that picks the task itself."""
