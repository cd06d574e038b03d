"""The memory tracker counts the bytes of tensors that live, each storage once."""

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from cl_graft.lab.experiments.memory_estimate.memory_tracker import MemoryTracker


def test_the_peak_is_the_most_that_lived_at_once():
    with MemoryTracker() as tracker:
        for _ in range(3):
            first = torch.zeros(100)
            second = first + 1
            del first, second
        kept = torch.zeros(50, dtype=torch.float64)
    assert tracker.peak == 800
    assert tracker.now == kept.nbytes


def test_views_and_known_tensors_count_nothing():
    model = torch.nn.Linear(10, 10)
    with MemoryTracker(model.parameters()) as tracker:
        view = model.weight.detach().view(-1)[3:]
        model.weight.detach().mul_(2)
        assert tracker.peak == 0
        copy = view.clone()
    assert tracker.now == copy.nbytes == 4 * 97


def test_activations_live_until_the_backward_pass_has_used_them():
    x = torch.zeros(64, requires_grad=True)
    with MemoryTracker() as tracker:
        loss = x.exp().exp().sum()
        before = tracker.now
        loss.backward()
        del loss
    assert before == 2 * x.nbytes + 4
    assert tracker.now == x.nbytes


def test_a_fake_tensor_counts_and_its_conditions_hold():
    with FakeTensorMode():
        fake = torch.zeros(10**12)
    with MemoryTracker() as tracker:
        loss = (fake * 2).mean()
        assert bool(loss.isfinite())
        assert float(loss) == 1.0
    assert tracker.peak > 4 * 10**12
