"""The skill of a fine-tuned model, found from the model before and after, in plain torch."""

import copy

import pytest
import torch
from torch import nn

from cl_graft import InputError, localize_skill
from cl_graft.errors import WrongBase
from cl_graft.grafts.hashing import hash_tensors
from cl_graft.runtime.tensor_names import tensors_by_name


def small_cnn():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(32, 3),
    )


def images(rows=48):
    """Three classes of bright spots in noise, (rows, 1, 8, 8)."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(rows, 1, 8, 8, generator=generator)
    y = torch.arange(rows) % 3
    for row in range(rows):
        x[row, 0, 2 * y[row] : 2 * y[row] + 3, :4] += 2.0
    return x, y


def mean_loss(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def accuracy(model):
    x, y = images()
    with torch.no_grad():
        return float((model.eval()(x).argmax(1) == y).float().mean())


def bits(model):
    return hash_tensors(tensors_by_name(model))


@pytest.fixture(scope="module")
def pair():
    """A CNN and its twin, fine-tuned with moving batch statistics, as anybody would."""
    base = small_cnn()
    tuned = copy.deepcopy(base).train()
    optimizer = torch.optim.SGD(tuned.parameters(), lr=0.1, momentum=0.9)
    for _ in range(30):
        optimizer.zero_grad()
        mean_loss(tuned, images()).backward()
        optimizer.step()
    return base.eval(), tuned.eval()


BATCHES = [images()] * 4
BY_LOSS = {"batches": BATCHES, "loss": mean_loss, "exclude": ("5",)}


def test_a_small_part_of_the_weights_carries_the_skill(pair):
    base, tuned = pair
    skill = localize_skill(base, tuned, density=0.25, **BY_LOSS)
    assert skill.graft.region.density == pytest.approx(0.25, abs=0.01)
    assert accuracy(tuned) == 1.0
    with skill.carried_by(base):
        assert accuracy(base) >= 0.9
    assert accuracy(base) < 0.6


def test_base_and_rest_and_the_whole_region_are_the_tuned_model_bit_for_bit(pair):
    base, tuned = pair
    skill = localize_skill(base, tuned, density=1.0, **BY_LOSS)
    with skill.carried_by(base):
        assert bits(base) == bits(tuned)


def test_the_head_and_running_statistics_are_the_rest_and_no_part_of_the_region(pair):
    base, tuned = pair
    skill = localize_skill(base, tuned, localizer="movement", exclude=("5",))
    statistics = {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    assert set(skill.rest) == {"5.weight", "5.bias", *statistics}
    assert not {"5.weight", "5.bias"} & set(skill.graft.region.layout.names)


@pytest.mark.parametrize("localizer", ["learned_mask", "paper_mask", "movement", "bias_only"])
def test_base_and_modes_and_flags_come_back_as_they_were(pair, localizer):
    base = copy.deepcopy(pair[0]).train()
    base[0].weight.requires_grad_(False)
    before = bits(base)
    skill = localize_skill(base, pair[1], batches=BATCHES, loss=mean_loss, localizer=localizer)
    assert len(skill.graft)
    assert bits(base) == before
    assert base.training
    assert base[1].training
    assert not base[0].weight.requires_grad
    assert base[5].weight.requires_grad


def test_base_comes_back_after_an_exception(pair):
    base, tuned = pair
    before = bits(base)

    def broken(model, batch):
        raise RuntimeError("no power")

    with pytest.raises(RuntimeError, match="no power"):
        localize_skill(base, tuned, batches=BATCHES, loss=broken)
    assert bits(base) == before


def test_tensors_by_name_serve_as_the_tuned_model(pair):
    base, tuned = pair
    one = localize_skill(base, tuned, localizer="movement")
    other = localize_skill(base, tuned.state_dict(), localizer="movement")
    assert one.graft.same_bits(other.graft)
    assert one.rest.keys() == other.rest.keys()


def test_what_cannot_be_localized_is_refused_with_the_reason(pair):
    base, tuned = pair
    with pytest.raises(InputError, match="no batches"):
        localize_skill(base, tuned)
    with pytest.raises(InputError, match="same object twice"):
        localize_skill(base, base, localizer="movement")
    with pytest.raises(InputError, match="another architecture"):
        localize_skill(base, nn.Linear(3, 3), localizer="movement")
    with pytest.raises(InputError, match=r"shape \(3, 32\) in the base and .* \(4, 32\)"):
        other = nn.Sequential(*list(copy.deepcopy(tuned))[:-1], nn.Linear(32, 4))
        localize_skill(base, other, localizer="movement")
    with pytest.raises(InputError, match=r"float32 .* torch\.bfloat16"):
        localize_skill(base, copy.deepcopy(tuned).to(torch.bfloat16), localizer="movement")
    with pytest.raises(ValueError, match="density"):
        localize_skill(base, tuned, localizer="movement", density=0.0)


def moved_statistics(model):
    model[1].running_mean.add_(0.5)


def moved_weights(model):
    model[0].weight.add_(0.5)


def test_a_model_that_is_not_the_base_is_refused_before_a_bit_is_written(pair):
    base, tuned = pair
    frozen = copy.deepcopy(base)
    with torch.no_grad():
        frozen[0].weight.add_(0.1)  # statistics and head stay, so they are no part of the rest
    skill = localize_skill(base, frozen, localizer="movement", exclude=("5",))
    for change in (moved_statistics, moved_weights):
        other = copy.deepcopy(base)
        with torch.no_grad():
            change(other)
        before = bits(other)
        with (
            pytest.raises(WrongBase, match="its weights or buffers are others"),
            skill.carried_by(other),
        ):
            pass
        assert bits(other) == before
    whole = localize_skill(base, tuned, localizer="movement", density=1.0, exclude=("5",))
    with (
        pytest.raises(WrongBase, match="it carries the skill already"),
        whole.carried_by(copy.deepcopy(tuned)),
    ):
        pass


def test_a_base_with_another_head_carries_the_head_of_the_skill(pair):
    base, tuned = pair
    skill = localize_skill(base, tuned, localizer="movement", density=1.0, exclude=("5",))
    other = copy.deepcopy(base)
    with torch.no_grad():
        other[5].weight.add_(1.0)
    with skill.carried_by(other):
        assert bits(other) == bits(tuned)
