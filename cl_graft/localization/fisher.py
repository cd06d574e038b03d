"""The diagonal of the Fisher information at the base, over micro-batches or single rows.

F = E_x E_{y ~ p(y|x)} (∇ log p(y|x))² (Sung et al., 2021, Sec. 3, Eqs. 5 to 7,
https://arxiv.org/abs/2111.09839). The empirical one puts the row's own label in place of the
expectation over y; the repository uses it by default, with 1,024 rows, and counts the task head,
which always trains, within its budget. Here the budget is the graftable coordinates' alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from cl_graft.localization.localizer_inputs import (
    LocalizerInputs,
    add_gradient_,
    drawn_loss,
    gradient_hooks,
    remaining_steps,
)
from cl_graft.localization.registry import register_localizer
from cl_graft.runtime.seeding import generator


@register_localizer(
    name="fisher",
    source=(
        "Sung et al., 2021, https://arxiv.org/abs/2111.09839, Sec. 3, with micro-batches for rows"
    ),
    needs_dense_run=False,
)
def fisher(inputs: LocalizerInputs, *, k: int, steps: int) -> dict[str, Tensor]:
    """Score coordinates by their empirical Fisher information at the base, Σ g².

    The score of FISH (Sung et al., 2021, https://arxiv.org/abs/2111.09839, Sec. 3), with the
    gradients of micro-batches in place of single examples.
    """
    del k
    total = inputs.zeros()

    def add(name: str, gradient: Tensor) -> None:
        wide = gradient.float()
        total[name].addcmul_(wide, wide)

    for step in remaining_steps(inputs, total, steps=steps):
        add_gradient_(inputs, step, into=add)
    return total


@register_localizer(
    name="fish",
    source="Sung et al., 2021, https://arxiv.org/abs/2111.09839, Eq. 7",
    needs_dense_run=False,
    needs_rows=True,
)
def fish(inputs: LocalizerInputs, *, k: int, steps: int) -> dict[str, Tensor]:
    """Score coordinates by their empirical Fisher information at the base, Σ g² over single rows.

    `fisher` sums over micro-batches instead, which takes far fewer backward passes.
    """
    del k
    return _information(inputs, steps, expected=False)


@register_localizer(
    name="fish_expected",
    source="Sung et al., 2021, https://arxiv.org/abs/2111.09839, Eq. 6",
    needs_dense_run=False,
    needs_rows=True,
)
def fish_expected(inputs: LocalizerInputs, *, k: int, steps: int) -> dict[str, Tensor]:
    """Score coordinates by their Fisher information at the base, Σ Σ_y p(y) g_y² over single rows.

    A row takes one backward pass a class. Where there is one logit, y is normal around it with
    variance 1, so that its gradient is squared. Where a row has several answers, such as tags, the
    model draws one y of them all, which takes one pass and has the same expectation.
    """
    del k
    return _information(inputs, steps, expected=True)


def _information(inputs: LocalizerInputs, steps: int, *, expected: bool) -> dict[str, Tensor]:
    if inputs.answers is None:
        raise ValueError("fish needs the answers to single rows: there are none")
    total, weight = inputs.zeros(), 1.0

    def add(name: str, gradient: Tensor) -> None:
        wide = gradient.float()
        total[name].addcmul_(wide, wide, value=weight)

    for step in remaining_steps(inputs, total, steps=steps):
        with gradient_hooks(inputs, into=add):
            for row, answer in enumerate(inputs.answers(step)):
                logits, loss = answer()
                if not expected:
                    terms = [(1.0, loss)]
                elif logits.ndim == 1:
                    terms = list(_terms(logits))
                else:
                    draw = generator(inputs.seed, "labels", step, row)
                    terms = [(1.0, drawn_loss(logits, draw))]
                for place, (share, term) in enumerate(terms):
                    weight = share
                    (term * inputs.loss_scale).backward(retain_graph=place < len(terms) - 1)
    return total


def _terms(logits: Tensor) -> Iterator[tuple[float, Tensor]]:
    """Yield (p(y), −log p(y)) of every class y with p(y) > 0."""
    if logits.numel() == 1:
        yield 1.0, logits.squeeze()
        return
    logs = logits.float().log_softmax(-1)
    for term, share in zip(-logs, logs.detach().exp().tolist(), strict=True):
        if share > 0:
            yield share, term
