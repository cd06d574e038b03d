"""A localizer that is interrupted after any step chooses what it would have chosen."""

import functools
from dataclasses import replace

import pytest
import torch
from interrupted import KeptPhases, Trip
from localization.planted import planted_inputs
from slow_cases import slow_but

from cl_graft.localization import LOCALIZERS, localize

STEPS = 6
CASES = [
    (name, None)
    for name, row in sorted(LOCALIZERS.items())
    if row.needs_gradients and not row.allowed
]


@functools.cache
def undisturbed(name, candidates):
    inputs, _ = planted_inputs()
    return localize(inputs, name, k=20, steps=STEPS, depth=60, candidates=candidates)


@pytest.mark.parametrize(("name", "candidates"), [*CASES, ("learned_mask", 200)])
@pytest.mark.parametrize("step", slow_but((STEPS // 2,), range(1, STEPS + 1)))
def test_a_localizer_interrupted_after_any_step_ends_on_the_same_ranking(name, candidates, step):
    inputs, _ = planted_inputs()
    chosen = {"k": 20, "steps": STEPS, "depth": 60, "candidates": candidates}
    phases = KeptPhases(trip_after=step)
    inputs = replace(inputs, checkpoint=phases.at("ranking-x"))
    with pytest.raises(Trip):
        localize(inputs, name, **chosen)
    asked = []

    def watched(ask):
        def asking(which):
            asked.append(which)
            return ask(which)

        return asking

    asks = {"losses": watched(inputs.losses), "row_losses": watched(inputs.row_losses)}
    inputs = replace(inputs, **asks)
    again = localize(inputs, name, **chosen)
    assert torch.equal(again.order, undisturbed(name, candidates).order)
    assert asked == list(range(step, STEPS))
