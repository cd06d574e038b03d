"""Foundations that know nothing of tasks: seeds, settings, registries, devices, threads, signals.

Also batches, progress, escaping, and the protocols of cache and checkpoints.
"""
