"""Experiments: a config is run, alone or in a comparison, planned, resumed and stored in folders.

Import from the modules: `run`, `comparison`, `plan`, `folders`, …; nothing is loaded here.
"""
