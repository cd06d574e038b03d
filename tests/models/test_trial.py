"""What a trial of two short texts finds when a model is loaded, and models of rarer forms."""

from pathlib import Path

import pytest
import torch
import transformers
from transformers import AutoTokenizer

from cl_graft.errors import InputError
from cl_graft.models import graftable_parameters, load_model, longest_row, make_head
from cl_graft.models.text_generation import TextHead

SMALL = {"hidden_size": 32, "intermediate_size": 64, "max_position_embeddings": 64}
SMALL |= {"num_hidden_layers": 2, "num_attention_heads": 4}


@pytest.fixture
def saved(tmp_path, tiny_bert, tiny_gpt2):
    """Return a function that saves a model with random weights, and a tokenizer that fits it."""

    def save(name: str, config: transformers.PreTrainedConfig, *, writes: bool = False) -> str:
        torch.manual_seed(0)
        model = getattr(transformers, name)(config).eval()
        model.save_pretrained(tmp_path)
        tokenizer = AutoTokenizer.from_pretrained(tiny_gpt2 if writes else tiny_bert)
        tokenizer.save_pretrained(tmp_path)
        return str(tmp_path)

    return save


def count_tokens(folder: Path) -> int:
    return len(AutoTokenizer.from_pretrained(folder))


def test_a_model_that_reads_padding_is_refused(saved, tiny_bert):
    sizes = {name: value for name, value in SMALL.items() if "heads" not in name}
    config = transformers.FNetConfig(
        vocab_size=count_tokens(tiny_bert), type_vocab_size=2, initializer_range=0.1, **sizes
    )
    folder = saved("FNetForMaskedLM", config)
    for family in ("encoder", "masked_lm"):
        with pytest.raises(InputError, match=r"\(fnet\) answers the same text differently"):
            load_model(folder, family=family)


def test_a_type_in_which_an_architecture_does_not_compute_is_refused_at_once(saved, tiny_bert):
    relative = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "type_vocab_size": 0}
    config = transformers.DebertaConfig(vocab_size=count_tokens(tiny_bert), **relative, **SMALL)
    folder = saved("DebertaModel", config)
    load_model(folder)
    with pytest.raises(InputError, match=r"\(deberta\) cannot compute a text with dtype bfloat16:"):
        load_model(folder, dtype="bfloat16")
    with pytest.raises(InputError, match="with dtype float32 and precision bf16: value cannot"):
        load_model(folder, precision="bf16")


def test_values_that_overflow_are_refused(tmp_path, tiny_bert):
    loaded = load_model(str(tiny_bert))
    with torch.no_grad():
        loaded.model.backbone.encoder.layer[0].output.dense.bias += 70_000
    loaded.model.backbone.save_pretrained(tmp_path)
    loaded.tokenizer.save_pretrained(tmp_path)
    load_model(str(tmp_path))
    with pytest.raises(InputError, match="NaN or infinities with dtype float16: are its"):
        load_model(str(tmp_path), dtype="float16")


def test_prompts_are_decoded_apart_where_padding_in_front_would_change_answers(saved, tiny_gpt2):
    sizes = {"context_length": 64, "hidden_size": 32, "attention_hidden_size": 32}
    sizes |= {"intermediate_size": 64, "num_hidden_layers": 2}
    config = transformers.RwkvConfig(vocab_size=count_tokens(tiny_gpt2), **sizes)
    loaded = load_model(saved("RwkvForCausalLM", config, writes=True), family="causal_lm")
    assert loaded.model.decodes_by_length
    loaded.model.add_head(0, TextHead([0], 3))
    texts = ["It was", "The film is a warm, funny and moving story about two sisters"]
    rows = [loaded.tokenizer(text)["input_ids"] for text in texts]
    inputs = torch.zeros(2, 2, max(map(len, rows)), dtype=torch.long)
    for number, row in enumerate(rows):
        inputs[number, 0, : len(row)], inputs[number, 1, : len(row)] = torch.tensor(row), 1
    with torch.no_grad():
        together = loaded.model(inputs, task=0)
        for number in (0, 1):
            alone = loaded.model(inputs[number : number + 1], task=0)
            torch.testing.assert_close(alone[0], together[number])


def test_regions_of_a_model_for_images_and_text_lie_in_what_text_reaches(saved, tiny_gpt2):
    words = {"vocab_size": count_tokens(tiny_gpt2), "pad_token_id": 0}
    text = transformers.Gemma3TextConfig(num_key_value_heads=2, head_dim=8, **words, **SMALL)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "image_size": 16, "patch_size": 8}
    vision = transformers.SiglipVisionConfig(num_hidden_layers=1, num_attention_heads=2, **sizes)
    config = transformers.Gemma3Config(
        text_config=text, vision_config=vision, mm_tokens_per_image=4, image_token_index=3
    )
    folder = saved("Gemma3ForConditionalGeneration", config, writes=True)
    model = load_model(folder, family="causal_lm").model
    chosen = graftable_parameters(model)
    assert all("language_model.layers" in name for name in chosen)
    head = make_head(model, classes=2, label_token_ids=[(5,), (6, 7)], seed=0)
    model.add_head(0, head)
    inputs = torch.ones(2, 2, 6, dtype=torch.long)
    model(inputs, task=0).sum().backward()
    assert all(parameter.grad is not None for parameter in chosen.values())
    assert (model.hidden_size, longest_row(model)) == (32, 64)
