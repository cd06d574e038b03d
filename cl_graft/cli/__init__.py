"""The command line `cl-graft`: one module a command.

Commands import what they need when they run, so that ``--help`` is quick.
"""

from cl_graft.cli.app import app, main

__all__ = ["app", "main"]
