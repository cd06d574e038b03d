"""What a compiled model learned is answered by the plain one, and the other way round."""

import pytest
import torch
from tiny_streams import learner, mlp, vector_stream
from torch import nn

from cl_graft.grafts.bank import BaseIdentity, Entry, GraftBank
from cl_graft.grafts.graft import Graft, extract
from cl_graft.grafts.hashing import model_sha256
from cl_graft.grafts.region import Layout, Region
from cl_graft.inference.mixed_batches import mixed_batch
from cl_graft.inference.task_switch import Switch
from cl_graft.models import graftable_parameters
from cl_graft.runtime.tensor_names import tensors_by_name
from cl_graft.training.region_parameters import RegionParameters

pytestmark = [
    pytest.mark.slow,  # to compile takes seconds
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
]


def whole(model):
    return torch.compile(model, backend="eager")


def part(model):
    model.features = torch.compile(model.features, backend="eager")
    return model


def layer(model):
    model.features[0] = torch.compile(model.features[0], backend="eager")
    return model


WAYS = pytest.mark.parametrize("compiled", [whole, part, layer])


@WAYS
def test_names_hashes_and_graftable_parameters_are_those_of_the_plain_model(compiled):
    plain, other = mlp(), compiled(mlp())
    assert any("_orig_mod" in name for name, _ in other.named_parameters())
    assert list(tensors_by_name(other)) == list(tensors_by_name(plain))
    assert list(graftable_parameters(other)) == list(graftable_parameters(plain))
    assert model_sha256(other) == model_sha256(plain)


@WAYS
@pytest.mark.parametrize("learns", ["plain", "compiled"])
def test_a_bank_of_one_opens_on_the_other(compiled, learns):
    make = {"compiled": lambda: compiled(mlp()), "plain": mlp}
    answers = {"compiled": "plain", "plain": "compiled"}[learns]
    first = learner(make[learns](), vector_stream(labels=[0, 1, 2]))
    first.strategy.train(first.train_stream)
    bank = first.plugin.bank
    assert not any("_orig_mod" in name for name in bank.layout.names)
    second = learner(make[answers](), vector_stream(labels=[0, 1, 2]), grafting={"bank": bank})
    second.plugin.carry(second.strategy.model, None)
    rows = torch.randn(5, 12, generator=torch.Generator().manual_seed(0))
    for position in range(3):
        both = []
        for run in (first, second):
            run.plugin.carry(run.strategy.model, position)
            with torch.no_grad():
                both.append(run.strategy.model.eval()(rows))
        assert torch.equal(*both)


@WAYS
def test_mixed_batches_and_switches_work_on_a_compiled_model(compiled):
    plain, other = mlp().eval(), compiled(mlp()).eval()
    layout = Layout.of(graftable_parameters(plain))
    bank = GraftBank(layout, BaseIdentity("0" * 64, "mlp", "float32"))
    for task, start in enumerate((0, 100)):
        region = Region.of(layout, range(start, layout.total, 200))
        graft = Graft(region, torch.full((len(region),), 0.5 + task))
        bank = bank.append(Entry(f"t{task}", task, graft, Region.empty(layout)))
    rows = torch.randn(3, 12, generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), mixed_batch(Switch(plain, bank), [0, 1, 1]) as serving:
        expected = serving(rows)
    switch = Switch(other, bank)
    for _ in range(2):
        with torch.no_grad(), mixed_batch(switch, [0, 1, 1]) as serving:
            torch.testing.assert_close(serving(rows), expected)


def test_regions_of_a_compiled_model_get_the_same_gradient_and_do_not_compile_again():
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3))
    layout = Layout.of(dict(model.named_parameters()))
    compiled = torch.compile(model, backend="aot_eager")
    x = torch.randn(4, 6)
    counts = []
    for first in range(6):
        region = Region.of(layout, range(first, layout.total, 7))
        before = extract(model, region)
        with RegionParameters(compiled, region) as live:
            model(x).square().sum().backward()
            plain, live.vector.grad = live.vector.grad, None
            compiled(x).square().sum().backward()
            torch.testing.assert_close(live.vector.grad, plain)
        with torch.no_grad():
            compiled(x)
        assert before.same_bits(extract(model, region))
        counts.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    assert counts[-1] == counts[-2] < counts[0] + 3
