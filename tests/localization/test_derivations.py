"""Localizers against plain derivations of what their papers and repositories compute."""

from dataclasses import replace

import pytest
import torch
from localization.planted import planted_inputs
from torch import nn

from cl_graft.grafts.graft import snapshot
from cl_graft.grafts.region import Region
from cl_graft.localization import LOCALIZERS, localize
from cl_graft.localization.gates import diff_pruning, diff_pruning_sam
from cl_graft.localization.gradient_scores import child_pruning, fish, fisher, sam
from cl_graft.localization.localizer_inputs import LocalizerInputs
from cl_graft.runtime.seeding import derive, generator

STEPS = 20


def dropping_inputs():
    """A model with dropout on one batch a step."""
    draw = generator(0, "dropping")
    model = nn.Sequential(nn.Linear(8, 300), nn.Tanh(), nn.Dropout(0.5), nn.Linear(300, 3))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw))
    x, targets = torch.randn(64, 8, generator=draw), torch.randint(3, (64,), generator=draw)

    def losses(step):
        part = slice(8 * (step % 8), 8 * (step % 8) + 8)
        return [lambda: nn.functional.cross_entropy(model(x[part]), targets[part])]

    model.eval()
    return LocalizerInputs(
        model, dict(model.named_parameters()), {}, losses, lambda: 0, lambda: 0, 7
    )


def test_sam_agrees_with_a_plain_derivation_of_its_repository():
    inputs, density = dropping_inputs(), 0.1
    model, parameters = inputs.model, list(inputs.parameters.values())
    ours = sam(inputs, k=1, steps=STEPS)
    assert not any(module.training for module in model.modules())
    # Burn-in: backward passes in train mode, clipped, accumulated, without an update.
    total = [torch.zeros_like(p) for p in parameters]
    model.train()
    for step in range(STEPS):
        torch.manual_seed(derive(7, "dropout", step))
        model.zero_grad()
        inputs.losses(step)[0]().backward()
        norm = nn.utils.clip_grad_norm_(parameters, 1.0)
        assert norm > 1  # so clipping plays a part
        total = [t + p.grad for t, p in zip(total, parameters, strict=True)]
    model.eval()
    model.zero_grad()
    masks = {}
    for (name, _), t in zip(inputs.parameters.items(), total, strict=True):
        torch.testing.assert_close(ours[name], t.abs(), rtol=1e-5, atol=1e-7)
        count = int(density * t.numel())
        mask = torch.zeros(t.numel(), dtype=torch.bool)
        mask[t.abs().reshape(-1).topk(count).indices] = True
        masks[name] = mask.reshape(t.shape)
    region = Region.from_masks(masks)
    assert len(masks["3.bias"].nonzero()) == 0
    assert localize(inputs, "sam", k=len(region), steps=STEPS).top(len(region)) == region


@pytest.mark.parametrize("score", [fish, fisher])
def test_fish_and_fisher_agree_with_a_plain_derivation(score):
    inputs, _ = planted_inputs()
    total = {name: torch.zeros_like(p) for name, p in inputs.parameters.items()}
    asked, share = (inputs.row_losses, 1) if score is fish else (inputs.losses, 0.5)
    for loss in [loss for step in range(2) for loss in asked(step)]:
        gradients = torch.autograd.grad(share * loss(), list(inputs.parameters.values()))
        for name, gradient in zip(total, gradients, strict=True):
            total[name] += gradient**2
    found = score(inputs, k=1, steps=2)
    for name, value in total.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-9)


def gradients_at(inputs, values, step):
    """The gradient of a step's loss at some values; the model is put back."""
    before = snapshot(inputs.parameters)
    with torch.no_grad():
        for name, parameter in inputs.parameters.items():
            parameter.copy_(values[name])
    losses = inputs.losses(step)
    loss = sum(part() for part in losses) / len(losses)
    found = torch.autograd.grad(loss, list(inputs.parameters.values()))
    with torch.no_grad():
        for name, parameter in inputs.parameters.items():
            parameter.copy_(before[name])
    return dict(zip(before, found, strict=True))


def test_child_pruning_agrees_with_a_plain_derivation():
    inputs, _ = planted_inputs()
    base, k, lr, steps = snapshot(inputs.parameters), 60, 0.5, 6
    found = child_pruning(inputs, k=k, steps=steps, lr=lr)
    now = snapshot(inputs.parameters)
    # By tensor as many as the published ⌊d·n⌋ at the d that gives k in all.
    quota = localize(replace(inputs, tuned={}), "child_pruning", k=k, steps=1).top(k).masks()
    for step in range(steps):
        gradient = gradients_at(inputs, now, step)
        now = {name: now[name] - lr * gradient[name] for name in now}
        if step < steps - 1:
            for name, count in ((name, int(mask.sum())) for name, mask in quota.items()):
                moved = (now[name] - base[name]).abs().reshape(-1)
                kept = torch.zeros_like(moved, dtype=torch.bool)
                kept[moved.topk(count).indices] = True
                now[name] = torch.where(kept.reshape(now[name].shape), now[name], base[name])
    for name, value in now.items():
        torch.testing.assert_close(found[name], (value - base[name]).abs(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("score", "stretch", "price"), [(diff_pruning, 1.5, 1.25e-7), (diff_pruning_sam, 3.0, None)]
)
def test_hard_concrete_gates_agree_with_a_plain_derivation(score, stretch, price):
    inputs, _ = planted_inputs()
    base, tuned = snapshot(inputs.parameters), inputs.tuned
    delta = {name: tuned[name] - base[name] for name in base}
    found = score(inputs, k=1, steps=STEPS)
    alpha = {}
    for name, value in base.items():
        draw = torch.randn(value.shape, generator=generator(inputs.seed, "gates", name))
        alpha[name] = torch.sigmoid(draw) if price is None else torch.zeros_like(value)
        alpha[name].requires_grad_()
    adam = torch.optim.Adam(alpha.values(), lr=0.1)
    for step in range(STEPS):
        gates = {}
        for name, a in alpha.items():
            u = torch.rand(a.shape, generator=generator(inputs.seed, "noise", step, name))
            u = u.clamp(1e-6, 1 - 1e-6)
            soft = torch.sigmoid(torch.log(u) - torch.log(1 - u) + a)
            gates[name] = torch.clamp(soft * (2 * stretch) - stretch, 0, 1)
        at = {name: base[name] + gates[name].detach() * delta[name] for name in base}
        gradient = gradients_at(inputs, at, step)
        adam.zero_grad()
        total = sum(a.numel() for a in alpha.values())
        penalty = sum(torch.sigmoid(a).sum() for a in alpha.values())
        (penalty * (price if price is not None else 1 / total)).backward()
        for name, gate in gates.items():
            gate.backward(gradient[name] * delta[name])
        adam.step()
    for name, a in alpha.items():
        a = a.detach()
        expected = a if price is None else torch.sigmoid(a) * delta[name].abs()
        torch.testing.assert_close(found[name], expected, rtol=1e-3, atol=1e-3)


def test_magnitude_is_the_size_of_the_weight_by_tensor():
    inputs, _ = planted_inputs()
    assert LOCALIZERS["magnitude"].per_tensor
    region = localize(inputs, "magnitude", k=100).top(100)
    masks = region.masks()
    for name, value in inputs.base.items():
        if 0 < masks[name].sum() < masks[name].numel():
            assert value.abs()[masks[name]].min() >= value.abs()[~masks[name]].max()
