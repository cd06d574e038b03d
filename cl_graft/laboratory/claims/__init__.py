"""Claims of the two papers as data, and what stored numbers say of them."""

from cl_graft.laboratory.claims.rule import Claim, Rule, Verdict, judge
from cl_graft.laboratory.claims.sam import SAM
from cl_graft.laboratory.claims.single_tasks import SINGLE_TASKS
from cl_graft.laboratory.claims.transfer import TRANSFER
from cl_graft.laboratory.claims.view import MissingReading, View

__all__ = ["CLAIMS", "Claim", "MissingReading", "Rule", "Verdict", "View", "judge"]

CLAIMS = (*SINGLE_TASKS, *TRANSFER, *SAM)
"""All claims, by paper and place."""
