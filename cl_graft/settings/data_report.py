"""The report on a run's data: rows that were used, left out, cut, or look suspicious."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cl_graft.strategies.benchmark import TextStream


def data_report(stream: TextStream) -> dict[str, dict[str, Any]]:
    """Describe, as JSON, the rows that were used of each task's data."""
    return {
        encoded.task.name: {
            # Inputs are more where rows are read in several windows.
            "rows": {
                "train": len(encoded.task.train),
                "valid": len(encoded.task.dev),
                "test": len(encoded.task.test),
            },
            "cut": dict(encoded.cut),
            "max_length": encoded.splits["train"][0].shape[-1],
            "source": dict(encoded.task.source),
        }
        for encoded in stream.tasks
    }


def data_lines(data: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a line on the data of each task of which a reader should know something."""
    lines = []
    for name, report in data.items():
        said = []
        cut, rows = sum(report["cut"].values()), sum(report["rows"].values())
        if cut:
            said.append(f"{cut:,} of {rows:,} rows cut at {report['max_length']} tokens")
        said += source_notes(report["source"])
        if said:
            lines.append(f"data of {name}: {'; '.join(said)}")
    return lines


def source_notes(source: Mapping[str, Any]) -> list[str]:
    """Say what a reader should know of a task's rows, from its `TextTask.source`."""
    said = list(source["notes"])
    if "f1_of" in source:
        said.append(f"its F1 is that of the label {source['f1_of']!r}")
    return said


def cut_note(data: Mapping[str, Mapping[str, Any]]) -> str:
    """Say how many rows are cut, of all tasks; empty if none is."""
    cut = sum(sum(report["cut"].values()) for report in data.values())
    rows = sum(sum(report["rows"].values()) for report in data.values())
    return f"{cut:,} of {rows:,} rows are longer, and cut" if cut else ""
