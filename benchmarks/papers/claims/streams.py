"""Claims of the grafting paper about a stream of tasks.

Panigrahi et al., 2023, https://arxiv.org/abs/2302.06600; numbers are those of its tables.
"""

from __future__ import annotations

from papers.claims.rule import Claim, Rule

__all__ = ["STREAMS"]


STREAMS = (
    Claim(
        name="naive-forgets",
        source="Table 4",
        words="Fine-tuning one task after the other forgets the first one.",
        paper="QNLI 88.0 to 67.5",
        experiments=("table4",),
        rule=Rule(
            what="QNLI at the end, independent − one after the other",
            number=lambda v: v("independent", "score at the end", task="qnli")
            - v("naive", "score at the end", task="qnli"),
            over="once", least=0.05,
        ),
    ),
    Claim(
        name="grafting-forgets-nothing",
        source="Sec. 5.2",
        words="Continual grafting forgets nothing.",
        paper="“forget-free”",
        experiments=("table4",),
        rule=Rule(
            what="forgetting", number=lambda v: v("grafting", "forgetting", task="all"),
            over="once", most=0.0,
        ),
    ),
    Claim(
        name="grafting-retains",
        source="Table 4",
        words="Continual grafting hardly loses against independent fine-tuning.",
        paper="86.5/90.8/92.5 against 88.0/93.1/92.1: 2.3 points at most",
        experiments=("table4",),
        rule=Rule(
            what="score at the end, independent − grafting",
            number=lambda v: v("independent", "score at the end")
            - v("grafting", "score at the end"),
            most=0.025,
        ),
    ),
)  # fmt: skip
"""Table 4."""
