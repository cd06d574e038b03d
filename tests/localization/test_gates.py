"""Gates that open and close around those that were open at the start (γ_base)."""

import torch
from localization.planted import planted_inputs

from cl_graft.grafts.graft import gather, grafted, snapshot
from cl_graft.grafts.region import Region
from cl_graft.localization import localize
from cl_graft.localization.gates import open_gates
from cl_graft.localization.learned_mask import learned_mask


def test_a_mask_that_starts_from_gates_agrees_with_a_plain_derivation():
    inputs, _ = planted_inputs()
    k, steps, total = 60, 6, inputs.layout.total
    moved = localize(inputs, "movement", k=30).top(20)
    # A third of the gates that start open are ones that chance chose: their gains are small.
    started = moved | Region.of(inputs.layout, torch.arange(0, total, total // 10))
    base, tuned = snapshot(inputs.parameters), inputs.tuned
    gain, is_open = torch.zeros(total), torch.zeros(total, dtype=torch.bool)
    is_open[started.index] = True
    before = is_open.clone()
    for step in range(steps):
        opened = Region.of(inputs.layout, is_open.nonzero().view(-1))
        with grafted(inputs.model, gather(tuned, opened)):
            loss = torch.stack([part() for part in inputs.losses(step)]).mean()
            gradients = torch.autograd.grad(loss, list(inputs.parameters.values()))
        moves = [tuned[name] - base[name] for name in base]
        weight = 1.0 if step < 3 else (steps - step) / 3
        parts = [weight * (g * m).view(-1) for g, m in zip(gradients, moves, strict=True)]
        gain -= torch.cat(parts)
        size = k
        if step < steps - 1:
            size = len(started) + round((k - len(started)) * (step + 1) / (steps - 1))
        for threshold in gain.abs().sort().values.tolist():
            is_open = torch.where(before, -gain < threshold, gain >= threshold)
            if int(is_open.sum()) <= size:
                break
    found = learned_mask(inputs, k=k, steps=steps, started=started)
    assert open_gates(found, started, k=k).index.tolist() == is_open.nonzero().view(-1).tolist()
    assert (before & ~is_open).any()
    assert int(is_open.sum()) > len(started)
