"""Regions, grafts and banks: where a task lives and what it keeps; how grafts are merged."""
