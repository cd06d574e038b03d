"""(IA)3: where its vectors stand in models of several types, and what a task trains and stores."""

import copy

import pytest
import torch
from slow_cases import slow_but
from small_runs import Runs
from tiny_runs import forgets_nothing

from cl_graft.lab.baselines.lora import add_ia3_, find_ia3
from cl_graft.models import load_model

HIDDEN, INNER, BLOCKS = 32, 64, 2
FAMILIES = {"bert": "encoder", "gpt2": "causal_lm", "llama": "causal_lm", "t5": "seq2seq_lm"}
VECTORS = {
    "bert": [
        ("self.key", "outputs", HIDDEN, BLOCKS),
        ("self.value", "outputs", HIDDEN, BLOCKS),
        ("attention.output.dense", "inputs", HIDDEN, BLOCKS),
        ("output.dense", "inputs", INNER, BLOCKS),
    ],
    "gpt2": [
        ("attn.c_attn", "outputs", 3 * HIDDEN, BLOCKS),
        ("mlp.c_proj", "inputs", 4 * HIDDEN, BLOCKS),
    ],
    "llama": [
        ("k_proj", "outputs", HIDDEN // 2, BLOCKS),
        ("v_proj", "outputs", HIDDEN // 2, BLOCKS),
        ("down_proj", "inputs", INNER, BLOCKS),
    ],
    # A block of the decoder attends to itself and to the encoder.
    "t5": [
        ("k", "outputs", HIDDEN, 3 * BLOCKS),
        ("v", "outputs", HIDDEN, 3 * BLOCKS),
        ("wo", "inputs", INNER, 2 * BLOCKS),
    ],
}
"""By the type of a model: end of a layer's path, what is scaled, size of the vector, and layers."""


@pytest.fixture(params=slow_but(("bert",), FAMILIES))
def kind(request):
    """Type of a model."""
    return request.param


@pytest.fixture
def folder(request, kind):
    """Folder of a checkpoint of that type."""
    return request.getfixturevalue(f"tiny_{kind}")


@pytest.fixture
def model(kind, folder):
    """The model, without a head."""
    return load_model(str(folder), family=FAMILIES[kind]).model.eval()


def answer(model):
    """Return what the backbone answers to some tokens."""
    ids = torch.randint(5, 50, (4, 9), generator=torch.Generator().manual_seed(0))
    more = {"decoder_input_ids": ids[:, :3]} if model.family == "seq2seq_lm" else {}
    with torch.no_grad():
        return model.backbone(input_ids=ids, **more)[0]


def scale_by_hand_(layer, vector, scaled):
    """Put a vector into a layer's weight, in place; Conv1D of GPT-2 holds the weight turned."""
    turned = type(layer).__name__ == "Conv1D"
    with torch.no_grad():
        weight = layer.weight.T if turned else layer.weight
        weight.mul_(vector if scaled == "inputs" else vector[:, None])
        if scaled == "outputs" and getattr(layer, "bias", None) is not None:
            layer.bias.mul_(vector)


def test_a_model_answers_as_the_base_at_first(model):
    before = answer(model)
    add_ia3_(model)
    assert all(torch.equal(one, torch.ones_like(one)) for one in find_ia3(model).values())
    assert torch.equal(answer(model), before)


def test_vectors_scale_keys_values_and_inner_activations(model, kind):
    by_hand, draws = copy.deepcopy(model), torch.Generator().manual_seed(0)
    base = answer(model)
    add_ia3_(model)
    found = []
    for name, vector in find_ia3(model).items():
        torch.nn.init.uniform_(vector, 0.5, 2.0, generator=draws)
        path, own = name.removesuffix(".ia3_l.default"), vector.detach().flatten()
        end, scaled, *_ = next(row for row in VECTORS[kind] if path.endswith(f".{row[0]}"))
        scale_by_hand_(by_hand.get_submodule(path), own, scaled)
        found.append((end, scaled, len(own)))
    assert [(*row, found.count(row)) for row in dict.fromkeys(found)] == VECTORS[kind]
    torch.testing.assert_close(answer(model), answer(by_hand), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(answer(model), base, atol=1e-2)


def test_a_task_adds_the_bytes_of_its_vectors_and_forgets_nothing(kind, folder, tmp_path):
    runs = Runs(folder, tmp_path, {"family": FAMILIES[kind], "max_length": 48, "steps": 2})
    result, heads = runs("ia3"), runs("naive").bytes
    assert result.backward_transfer == result.forgetting == 0.0
    assert forgets_nothing(result)
    size = 4 * sum(width * layers for *_, width, layers in VECTORS[kind])
    assert {task: result.bytes[task] - heads[task] for task in heads} == dict.fromkeys(heads, size)
