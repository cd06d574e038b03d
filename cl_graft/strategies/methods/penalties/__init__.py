"""Penalties: weights that mattered to earlier tasks are held near their values."""
