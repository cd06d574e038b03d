"""Plugins for any strategy's training loop: batches, budgets, precision, resuming."""
