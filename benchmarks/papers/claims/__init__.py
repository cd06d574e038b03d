"""Claims of the two papers, and what stored numbers say of them.

A claim is data: the YAML files beside this module have what a paper says, its number, and the rule
that decides it. `rule` judges them, `expression` computes the number that a rule names.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import yaml

from papers.claims.rule import Claim, Rule, Verdict, judge
from papers.claims.view import MissingMeasurement, View

__all__ = [
    "CLAIMS",
    "CLAIMS_BY_SOURCE",
    "Claim",
    "MissingMeasurement",
    "Rule",
    "Verdict",
    "View",
    "judge",
]


def _read(name: str) -> tuple[Claim, ...]:
    text = (Path(__file__).parent / f"{name}.yaml").read_text(encoding="utf-8")
    return tuple(Claim.of(values) for values in yaml.safe_load(text))


CLAIMS_BY_SOURCE: Mapping[str, tuple[Claim, ...]] = MappingProxyType(
    {
        "Task-Specific Skill Localization (Panigrahi et al., 2023, "
        "<https://arxiv.org/abs/2302.06600>)": (
            *_read("scores"),
            *_read("regions"),
            *_read("transfer"),
            *_read("several_tasks"),
            *_read("streams"),
        ),
        "On the Effectiveness of Parameter-Efficient Fine-Tuning (Fu et al., 2023, "
        "<https://arxiv.org/abs/2211.15583>)": _read("sam"),
        "Expectations of this project": _read("expectations"),
    }
)
"""The claims by who makes them; expectations were written down before their experiments ran."""

CLAIMS = tuple(claim for claims in CLAIMS_BY_SOURCE.values() for claim in claims)
"""All of them."""
