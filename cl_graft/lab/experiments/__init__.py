"""Experiments: from a config to a folder of results, and back from a folder to a model.

Import from the modules: `config`, `run`, `compare`, `rebuild`, …; nothing is loaded here.
"""
