"""The pages of results: tables and figures of the papers, and claim by claim whether they hold.

Made of the stored numbers alone: ``benchmarks/results/laboratory/*.json``, one file an experiment
and scale, and ``benchmarks/results/table4-cpu.json``. ``docs/results/paper_tables.md`` and its
folder, ``claims.md`` and ``pictures/`` are written anew.

    python benchmarks/paper_experiment.py table1 --scale cpu --data DATA --out OUT
    python benchmarks/paper_pages.py --store OUT    # keep what OUT has, then write the pages
    python benchmarks/paper_pages.py                # write the pages (make results)
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from papers.pages import read_results, write_pages
from papers.stored import store

from cl_graft.errors import InputError

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Store results where some are given, and write the pages."""
    parser = argparse.ArgumentParser(description="The pages of results.")
    parser.add_argument("--store", type=Path, metavar="OUT", help="results to keep first")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs" / "results")
    arguments = parser.parse_args()
    kept = arguments.results / "laboratory"
    try:
        written = store(arguments.store, kept) if arguments.store else []
        results = read_results(kept, stream=arguments.results / "table4-cpu.json")
    except InputError as error:
        parser.error(str(error))
    for file in [*written, *write_pages(results, arguments.docs)]:
        sys.stdout.write(f"{file}\n")


if __name__ == "__main__":
    main()
