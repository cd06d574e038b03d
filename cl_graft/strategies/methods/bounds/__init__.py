"""Bounds: what forgetting costs at most, and what could be had if nothing were forgotten."""
