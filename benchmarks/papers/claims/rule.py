"""Claims, and the rules by which stored numbers decide whether they hold.

A rule is a number of a task, or of a whole experiment, and a bound on it. What it says in words and
what it decides come from the same fields, so neither can be typed in by hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from papers.claims.expression import compute_number
from papers.claims.view import MissingMeasurement, View


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A number and a bound on it, of which one of `above`, `least` and `most` is given.

    Attributes:
        what: The number in words.
        number: The expression that computes it, see `papers.claims.expression`.
        over: ``"each"``: every task has to meet the bound; ``"mean"``: the mean over tasks;
            ``"once"``: the number is one of the whole experiment.
        share: For ``"each"``, of the tasks that have the number, in (0, 1].
        above: It has to be more.
        least: It has to be at least this.
        most: It has to be at most this.
        unit: ``"%"`` for shares, ``"points"`` for differences of shares, both written a hundred
            times as large; empty for plain numbers.
    """

    what: str
    number: str
    over: Literal["each", "mean", "once"] = "each"
    share: float = 1.0
    above: float | None = None
    least: float | None = None
    most: float | None = None
    unit: Literal["%", "points", ""] = "points"

    def __str__(self) -> str:
        """Say when it holds."""
        bounds = {"above": self.above, "at least": self.least, "at most": self.most}
        name, bound = next((n, b) for n, b in bounds.items() if b is not None)
        of_tasks = "every task" if self.share == 1 else f"{100 * self.share:.0f} % of the tasks"
        places = {"each": f"on {of_tasks}", "mean": "on average", "once": ""}
        return f"{self.what} {name} {self.format_number(bound)} {places[self.over]}".strip()

    def accepts(self, value: float) -> bool:
        """Say whether a number meets the bound."""
        if self.above is not None:
            return value > self.above
        if self.least is not None:
            return value >= self.least
        return self.most is not None and value <= self.most

    def format_number(self, value: float) -> str:
        """Write a number with its unit."""
        return f"{100 * value:.1f} {self.unit}" if self.unit else f"{value:.3g}"

    def format_span(self, values: Sequence[float]) -> str:
        """Write the lowest and the highest one of numbers, or the only one."""
        lowest, highest = self.format_number(min(values)), self.format_number(max(values))
        return highest if len(values) == 1 else f"{lowest.split()[0]} to {highest}"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence of a paper, and the numbers that would show it.

    Attributes:
        name: Short and unique.
        source: Where in the paper.
        text: The claim.
        paper: The paper's numbers.
        experiments: Whose measurements decide; the first one is meant where a rule names none.
        rule: How.
    """

    name: str
    source: str
    text: str
    paper: str
    experiments: tuple[str, ...]
    rule: Rule

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Claim:
        """Make a claim of an entry of a YAML file, where `what` and `number` of the rule stand."""
        own = {name: values[name] for name in ("name", "source", "text", "paper")}
        rule = Rule(what=values["what"], number=values["number"], **values["rule"])
        return cls(**own, experiments=tuple(values["experiments"]), rule=rule)


@dataclass(frozen=True)
class Verdict:
    """Verdict of the numbers on a claim.

    Attributes:
        holds: Whether it holds; None where it was not run.
        ours: The numbers, or why there are none.
        alone: Of how many seeds the numbers say the same by themselves, and how many there are;
            None where a seed alone decides nothing, or experiments have other seeds.
    """

    holds: bool | None
    ours: str
    alone: tuple[int, int] | None = None

    def __str__(self) -> str:
        """Say it in words."""
        return {True: "holds", False: "does not hold", None: "not run here"}[self.holds]


def judge(claim: Claim, results: Mapping[str, View]) -> Verdict:
    """Decide a claim from the results at hand.

    Args:
        claim: The claim.
        results: By experiment, each a view of its own rows.
    """
    missing = [name for name in claim.experiments if name not in results]
    if missing:
        return Verdict(None, f"no stored result of `{'`, `'.join(missing)}`")
    rows = {name: results[name].rows[name] for name in claim.experiments}
    whole = View(rows, results[claim.experiments[0]].config)
    alike = len({results[name].config.get("cells") for name in claim.experiments}) == 1
    try:
        found = _decide(claim.rule, whole)
    except MissingMeasurement as missed:
        return Verdict(None, f"the stored result has no {missed}")
    return replace(found, alone=_alone(claim.rule, whole, found) if alike else None)


def _alone(rule: Rule, whole: View, found: Verdict) -> tuple[int, int] | None:
    """Count the seeds that by themselves decide as all do together."""
    seeds = whole.seeds()
    try:
        same = sum(_decide(rule, seed).holds == found.holds for seed in seeds)
    except MissingMeasurement:
        return None
    return (same, len(seeds)) if len(seeds) > 1 else None


def _decide(rule: Rule, whole: View) -> Verdict:
    if rule.over == "once":
        value = compute_number(rule.number, whole)
        return Verdict(rule.accepts(value), rule.format_number(value))
    numbers: list[float] = []
    lacking: MissingMeasurement | None = None
    for view in whole.tasks():
        try:
            numbers.append(compute_number(rule.number, view))
        except MissingMeasurement as missed:
            lacking = missed
    if not numbers:
        raise lacking or MissingMeasurement("task")
    mean, span = sum(numbers) / len(numbers), rule.format_span(numbers)
    if rule.over == "mean":
        ours = rule.format_number(mean)
        return Verdict(rule.accepts(mean), ours if len(numbers) == 1 else f"{ours} ({span})")
    met = sum(rule.accepts(number) for number in numbers)
    ours = f"{met} of {len(numbers)} tasks: {span}"
    return Verdict(met >= rule.share * len(numbers) - 1e-9, ours)
