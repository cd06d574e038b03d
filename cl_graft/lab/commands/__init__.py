"""Commands of experiments: `run`, `compare`, `doctor` and the others in `all_commands`.

The commands on a saved bank are in `cl_graft.cli`.
"""
