"""The program `cl-graft` (`app`), and its commands on a saved bank: `predict`, `add`, `forget`, ….

`exchange` has `export` and `import`. The commands of experiments, such as `run` and `doctor`, are
in `cl_graft.lab.commands`. Commands import what they need when they run, so that ``--help`` is
quick.
"""

__all__ = ["main"]


def main() -> None:
    """Run the program's command line and exit with its code."""
    from cl_graft.cli.app import main as run_program

    run_program()
