"""The command line `cl-graft`: a thin layer over `cl_graft.experiments`.

Commands import what they need when they run, so that help comes quickly.
"""

from cl_graft.cli.app import app, main

__all__ = ["app", "main"]
