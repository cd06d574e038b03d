"""Claims of the two papers as data, and what stored numbers say of them."""

from collections.abc import Mapping
from types import MappingProxyType

from papers.claims.expectations import EXPECTATIONS
from papers.claims.regions import REGIONS
from papers.claims.rule import Claim, Rule, Verdict, judge
from papers.claims.sam import SAM
from papers.claims.scores import SCORES
from papers.claims.several_tasks import SEVERAL_TASKS
from papers.claims.streams import STREAMS
from papers.claims.transfer import TRANSFER
from papers.claims.view import MissingReading, View

__all__ = [
    "CLAIMS",
    "CLAIMS_BY_SOURCE",
    "Claim",
    "MissingReading",
    "Rule",
    "Verdict",
    "View",
    "judge",
]

CLAIMS_BY_SOURCE: Mapping[str, tuple[Claim, ...]] = MappingProxyType(
    {
        "Task-Specific Skill Localization (Panigrahi et al., 2023, "
        "<https://arxiv.org/abs/2302.06600>)": (
            *SCORES,
            *REGIONS,
            *TRANSFER,
            *SEVERAL_TASKS,
            *STREAMS,
        ),
        "On the Effectiveness of Parameter-Efficient Fine-Tuning (Fu et al., 2023, "
        "<https://arxiv.org/abs/2211.15583>)": SAM,
        "Expectations of this project": EXPECTATIONS,
    }
)
"""The claims by who makes them."""

CLAIMS = tuple(claim for claims in CLAIMS_BY_SOURCE.values() for claim in claims)
"""All of them."""
