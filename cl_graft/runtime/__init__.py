"""Foundations: seeds, cache and checkpoint protocols, signals, compatibility shims."""
