"""Results of experiments as files that stay: what was run, with what, and every number of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cl_graft.errors import InputError
from cl_graft.settings import to_dotted
from cl_graft.storage.files import replace_file
from cl_graft.training.fine_tuning_settings import FineTuning
from papers.claims import View
from papers.measurements import Measurement, Summary, summarize

_HOW = {"encoder": " with a head", "masked_lm": " with prompts", "causal_lm": " with label strings"}
"""Way in which a model of a family answers."""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """The result of an experiment."""

    name: str
    title: str
    source: str
    command: str
    scale: str
    config: Mapping[str, Any]
    cells: str
    seconds: Sequence[float | None] = ()
    rows: Sequence[Summary]
    versions: Mapping[str, str]
    machine: Mapping[str, Any]

    @property
    def view(self) -> View:
        """Its numbers as claims look at them."""
        return View({self.name: self.rows}, {**self.config, "cells": self.cells})

    @property
    def setting(self) -> str:
        """Say in a line with what it was run."""
        config = self.config
        shots, most = config["stream.shots"], config.get("stream.max_test")
        limit = config.get("stream.max_train")
        rows = "all rows a class" if shots is None else f"{shots:,} rows a class"
        if shots is None and limit is not None:
            rows = f"at most {limit:,} training rows"
        # A named stream says itself how its tasks are answered.
        how = "" if config.get("stream.name") else _HOW.get(config.get("model.family", ""), "")
        share = f"{100 * config['grafting.density']:g} %"
        asked = "all" if most is None else f"at most {most:,}"
        steps = config.get("fine_tuning.steps", FineTuning().steps)
        due = "the paper's" if config.get("training.paper_steps") else steps
        return (
            f"{config['model.name']}{how} on {', '.join(config['stream.tasks'])}; "
            f"{rows}, {due} steps, density {share}, {asked} test rows, {self.cells}"
        )

    @property
    def duration(self) -> str:
        """Say in a sentence how long a cell took; empty where that is not known."""
        known = [one for one in self.seconds if one is not None]
        if not known:
            return ""
        minutes = max(1, round(sum(known) / len(known) / 60))
        return f" A cell took {minutes} min with what the cache had."


def store(found: Path | str, into: Path | str) -> list[Path]:
    """Copy results of experiments to where they stay, one file an experiment and scale."""
    found, into = Path(found), Path(into)
    written: list[Path] = []
    for file in sorted(found.glob("*/results.json")):
        result = read_stored(file)
        into.mkdir(parents=True, exist_ok=True)
        written.append(into / f"{result.name}-{result.scale}.json")
        replace_file(written[-1], file.read_bytes())
    if not written:
        raise InputError(f"{found} holds no results: no */results.json in it")
    return written


def read_stored(file: Path | str) -> Stored:
    """Read the result of an experiment."""
    file = Path(file)
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        rows = [Summary(**{**row, "values": tuple(row["values"])}) for row in values["rows"]]
        return Stored(
            name=values["experiment"],
            title=values["title"],
            source=values["source"],
            command=values["command"],
            scale=values["scale"],
            config=to_dotted(values["config"]),
            cells=values["cells"],
            seconds=values.get("seconds", ()),
            rows=rows,
            versions=values["versions"],
            machine=values["machine"],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{file} is not the result of an experiment of this version ({error!r}); run "
            "`paper_experiment.py` once more on its folder, which keeps the cells that are done"
        ) from None


def read_stream(file: Path | str) -> Stored:
    """Read a comparison on a stream, as `benchmarks/table4.py` stores it, as Table 4."""
    file = Path(file)
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        return Stored(
            name="table4",
            title="Continual learning",
            source="Panigrahi et al., 2023, Table 4",
            command=values["command"],
            scale=file.stem.rpartition("-")[2],
            config=to_dotted(values["config"]),
            cells=f"seeds {', '.join(map(str, values['seeds']))}",
            rows=summarize([list(_of_stream(values["strategies"]))]),
            versions=values["versions"],
            machine=values["machine"],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file} is not a comparison of strategies ({error!r})") from None


def _of_stream(strategies: Mapping[str, Any]) -> Iterator[Measurement]:
    for strategy, found in strategies.items():
        for task, score in found["final"].items():
            yield Measurement(task, strategy, "score at the end", score["mean"])
        yield Measurement("all", strategy, "forgetting", found["forgetting"]["mean"])
