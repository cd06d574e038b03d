"""Plugins for any strategy's training loop: steps, rates, batches, precision, reports, resuming."""
