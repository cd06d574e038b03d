"""The command line `cl-graft`: one module a command.

Commands import what they need when they run, so that ``--help`` is quick.
"""

__all__ = ["main"]


def main() -> None:
    """Run the program's command line and exit with its code."""
    from cl_graft.cli.app import main as run_program

    run_program()
