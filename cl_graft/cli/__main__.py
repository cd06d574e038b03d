"""`python -m cl_graft.cli`, for where the command `cl-graft` is not on the path."""

from cl_graft.cli.app import main

main()
