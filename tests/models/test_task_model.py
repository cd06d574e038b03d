"""TaskModel on tiny random checkpoints of every family, and on real weights where there are any."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from slow_cases import slow, slow_but
from torch import Tensor
from torch.nn import functional as F

from cl_graft.errors import InputError
from cl_graft.models import (
    Loaded,
    TaskModel,
    graftable_parameters,
    load_model,
    longest_row,
    make_head,
)

ENCODERS = ["bert", "distilbert", "electra", "roberta"]
DECODERS = ["gpt2", "llama"]
TEXTS = ["It was great!", "The answer follows from the sentence, or says the opposite.", "No."]


def load(request: pytest.FixtureRequest, kind: str, family: str, **settings: str) -> Loaded:
    return load_model(str(request.getfixturevalue(f"tiny_{kind}")), family=family, **settings)


def encode(loaded: Loaded, texts: list[str], pairs: list[str] | None = None) -> Tensor:
    """Encode by the tokenizer alone, as an independent reference of the sample's layout."""
    parts = zip(texts, *([pairs] if pairs else []), strict=True)
    rows = [loaded.tokenizer(*part) for part in parts]
    longest = max(len(row["input_ids"]) for row in rows) + 5  # columns of padding in every row
    padding = loaded.tokenizer.pad_token_id or 0
    x = torch.zeros(len(rows), 2, longest, dtype=torch.long)
    x[:, 0] = padding
    for i, row in enumerate(rows):
        ids = torch.tensor(row["input_ids"])
        x[i, 0, : len(ids)] = ids
        x[i, 1, : len(ids)] = 1 + torch.tensor(row.get("token_type_ids", [0] * len(ids)))
    return x


def prompts(loaded: Loaded) -> list[str]:
    return [f"{text} It was {loaded.tokenizer.mask_token}." for text in TEXTS]


def tokens(loaded: Loaded, text: str) -> tuple[int, ...]:
    return tuple(loaded.tokenizer(text, add_special_tokens=False)["input_ids"])


def with_head(loaded: Loaded, strings: list[tuple[int, ...]] | None = None) -> TaskModel:
    """Give task 0 a head: of 3 classes on an encoder, of the given labels otherwise."""
    classes = 3 if strings is None else len(strings)
    head = make_head(loaded.model, classes=classes, label_token_ids=strings, seed=1)
    loaded.model.add_head(0, head)
    return loaded.model


def family_with_head(request: pytest.FixtureRequest, kind: str, family: str, **settings: str):
    """Load a tiny model of a family with a head, and a batch for it."""
    loaded = load(request, kind, family, **settings)
    if family == "encoder":
        return with_head(loaded), encode(loaded, TEXTS)
    words = [tokens(loaded, " great"), tokens(loaded, " terrible")]
    if family == "masked_lm":
        return with_head(loaded, words), encode(loaded, prompts(loaded))
    words.append(tokens(loaded, " great terrible"))
    return with_head(loaded, words), encode(loaded, TEXTS)


FEW = [("bert", "encoder"), ("roberta", "masked_lm"), ("gpt2", "causal_lm"), ("llama", "causal_lm")]
EVERY = slow_but(
    FEW,
    [
        *((kind, family) for kind in ENCODERS for family in ("encoder", "masked_lm")),
        *((kind, family) for kind in DECODERS for family in ("encoder", "causal_lm")),
    ],
)


@pytest.mark.parametrize("pooling", ["mean", "first"])
@pytest.mark.parametrize("kind", ENCODERS)
def test_an_encoder_pools_over_the_tokens_of_each_row(request, kind, pooling):
    loaded = load(request, kind, "encoder", pooling=pooling)
    model = with_head(loaded)
    logits = model(encode(loaded, TEXTS), 0)
    for row, text in zip(logits, TEXTS, strict=True):
        states = model.backbone(**loaded.tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        pooled = states.mean(0) if pooling == "mean" else states[0]
        torch.testing.assert_close(row, model.heads["0"](pooled))
    assert logits.dtype == torch.float32


@pytest.mark.parametrize(("kind", "family"), EVERY)
def test_a_row_is_answered_the_same_alone_and_beside_longer_rows(request, kind, family):
    model, x = family_with_head(request, kind, family)
    together = model(x, 0)
    assert together.shape == (3, 3 if family != "masked_lm" else 2)
    for i in range(len(x)):
        torch.testing.assert_close(model(x[i : i + 1], 0)[0], together[i], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("kind", "family"), EVERY)
def test_what_stands_in_the_padding_changes_no_bit(request, kind, family):
    model, x = family_with_head(request, kind, family)
    logits = model(x, 0)
    other = x.clone()
    if kind != "roberta":  # its positions are counted by the padding id
        other[:, 0][x[:, 1] == 0] = 7
    assert torch.equal(model(other, 0), logits)
    assert torch.equal(model(F.pad(other, (0, 9)), 0), logits)


@pytest.mark.parametrize(("kind", "family"), EVERY)
def test_gradients_flow_into_the_graftable_parameters_and_the_head_alone(request, kind, family):
    model, x = family_with_head(request, kind, family)
    F.cross_entropy(model.train()(x, 0), torch.tensor([0, 1, 0])).backward()
    heads = {f"heads.{name}" for name, _ in model.heads.named_parameters()}
    allowed = set(graftable_parameters(model)) | heads
    parameters = dict(model.named_parameters())
    assert {name for name, p in parameters.items() if p.requires_grad} == allowed
    assert {name for name, p in parameters.items() if p.grad is not None} == allowed
    # Attention is blind to biases of the keys: their gradient is zero but for rounding.
    still = {name for name in allowed if not parameters[name].grad.any()}
    assert not {name for name in still if "key.bias" not in name and "k_lin.bias" not in name}
    assert all(name.startswith("backbone.") for name in graftable_parameters(model))


@pytest.mark.parametrize("dtype", ["bfloat16", *slow("float16")])
@pytest.mark.parametrize(("kind", "family"), EVERY)
def test_half_precision_stays_in_the_weights_and_comes_near_fp32(request, kind, family, dtype):
    exact, x = family_with_head(request, kind, family)
    model, _ = family_with_head(request, kind, family, dtype=dtype)
    wanted = getattr(torch, dtype)
    assert {p.dtype for p in graftable_parameters(model).values()} == {wanted}
    logits = model(x, 0)
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits, exact(x, 0), rtol=0.1, atol=0.1)


@pytest.mark.parametrize("kind", ["bert", "electra"])
def test_segments_reach_models_that_tell_them_apart(request, kind):
    loaded = load(request, kind, "encoder")
    model = with_head(loaded)
    x = encode(loaded, ["It was great!"], ["No, terrible."])
    row = loaded.tokenizer("It was great!", "No, terrible.", return_tensors="pt")
    states = model.backbone(**row).last_hidden_state
    torch.testing.assert_close(model(x, 0), model.heads["0"](states.mean(1)))
    flat = torch.stack((x[:, 0], x[:, 1].clamp(max=1)), 1)
    assert not torch.allclose(model(x, 0), model(flat, 0), atol=1e-3)


@pytest.mark.parametrize("kind", ENCODERS)
def test_a_masked_lm_answers_with_the_full_vocabulary_logits_at_the_mask(request, kind):
    loaded = load(request, kind, "masked_lm")
    words = [tokens(loaded, " great"), tokens(loaded, " terrible"), tokens(loaded, " maybe")]
    model = with_head(loaded, words)
    logits = model(encode(loaded, prompts(loaded)), 0)
    for row, text in zip(logits, prompts(loaded), strict=True):
        inputs = loaded.tokenizer(text, return_tensors="pt")
        place = inputs["input_ids"][0].tolist().index(loaded.tokenizer.mask_token_id)
        whole = model.backbone(**inputs).logits[0, place]
        torch.testing.assert_close(row, torch.stack([whole[word[0]] for word in words]))


def test_only_the_mask_positions_enter_the_vocabulary_projection(tiny_roberta):
    loaded = load_model(str(tiny_roberta), family="masked_lm")
    model = with_head(loaded, [(5,), (6,)])
    seen = []
    projection = model.backbone.get_output_embeddings()
    projection.register_forward_hook(lambda _, inputs, output: seen.append(output.shape))
    x = encode(loaded, prompts(loaded))
    model(x, 0)
    assert seen == [(3, 1, model.backbone.config.vocab_size)]
    model.backbone(input_ids=x[:, 0])  # the backbone itself is as before
    assert seen[1][:2] == x[:, 0].shape


def test_a_row_without_exactly_one_mask_token_is_refused(tiny_bert):
    loaded = load_model(str(tiny_bert), family="masked_lm")
    model = with_head(loaded, [(5,), (6,)])
    mask = loaded.tokenizer.mask_token
    for text, count in (("It was great.", 0), (f"{mask} was {mask}.", 2)):
        with pytest.raises(ValueError, match=f"row 1 holds {count} mask tokens"):
            model(encode(loaded, [f"It was {mask}.", text]), 0)


def hand_scores(loaded: Loaded, text: str, strings: list[tuple[int, ...]]) -> Tensor:
    """Score each label by a forward of its own, token by token."""
    scores = []
    for string in strings:
        prompt = list(loaded.tokenizer(text)["input_ids"])
        score = torch.zeros(())
        for token in string:
            logits = loaded.model.backbone(input_ids=torch.tensor([prompt])).logits[0, -1]
            score = score + logits.float().log_softmax(-1)[token]
            prompt.append(token)
        scores.append(score)
    return torch.stack(scores)


@pytest.mark.parametrize("labels", [[" yes", " no"], [" yes", " no", " follows from the answer"]])
@pytest.mark.parametrize("kind", DECODERS)
def test_a_causal_lm_scores_whole_label_strings(request, kind, labels):
    loaded = load(request, kind, "causal_lm")
    strings = [tokens(loaded, label) for label in labels]
    model = with_head(loaded, strings)
    scores = model(encode(loaded, TEXTS), 0)
    assert (max(map(len, strings)) > 1) == (len(labels) == 3)
    for row, text in zip(scores, TEXTS, strict=True):
        expected = hand_scores(loaded, text, strings)
        torch.testing.assert_close(row, expected, rtol=1e-4, atol=1e-5)


def test_a_causal_prompt_without_tokens_is_refused(tiny_gpt2):
    model = with_head(load_model(str(tiny_gpt2), family="causal_lm"), [(5,), (6,)])
    x = torch.zeros(2, 2, 4, dtype=torch.long)
    x[0, 1] = 1
    with pytest.raises(ValueError, match="prompt without tokens"):
        model(x, 0)


def test_every_task_is_answered_by_its_own_head(tiny_bert):
    loaded = load_model(str(tiny_bert))
    model = with_head(loaded)
    model.add_head(7, make_head(model, classes=5, seed=2))
    x = encode(loaded, TEXTS)
    assert model(x, 0).shape == (3, 3)
    assert model(x, 7).shape == (3, 5)
    with pytest.raises(ValueError, match="task 7 has a head already; heads: 0, 7"):
        model.add_head(7, make_head(model, classes=5, seed=2))
    with pytest.raises(ValueError, match="task 3 has no head; heads: 0, 7"):
        model(x, 3)


@pytest.mark.parametrize(("kind", "family"), EVERY)
def test_a_copy_answers_with_the_same_bits_and_is_independent(request, kind, family):
    model, x = family_with_head(request, kind, family)
    logits = model(x, 0)
    copy = deepcopy(model)
    assert torch.equal(copy(x, 0), logits)
    with torch.no_grad():
        for parameter in graftable_parameters(copy).values():
            parameter.add_(0.1)
    assert not torch.equal(copy(x, 0), logits)
    assert torch.equal(model(x, 0), logits)


def test_a_batch_of_another_form_is_refused(tiny_bert):
    model = with_head(load_model(str(tiny_bert)))
    integers = torch.zeros(2, 4).long(), torch.zeros(2, 3, 4).long()
    for x in (*integers, torch.ones(2, 2, 4), torch.ones(0, 2, 4)):
        with pytest.raises(ValueError, match=r"integer tensor of shape \(n, 2, L\)"):
            model(x, 0)


def test_heads_of_language_models_are_checked_against_the_model(tiny_bert):
    model = load_model(str(tiny_bert), family="masked_lm").model
    for labels, message in (
        (None, "tokens of each of the 2 labels, got none"),
        ([(1,)], "got those of 1"),
        ([(1,), (2, 3)], r"one token each, got \(by label\) {1: 2}"),
        ([(1,), (10**6,)], "not in the model's vocabulary"),
    ):
        with pytest.raises(InputError, match=message):
            make_head(model, classes=2, label_token_ids=labels, seed=0)


def test_minilm_pools_to_the_sentence_vector_and_has_10_646_784_graftable_coordinates(minilm):
    loaded = load_model("minilm")
    graftable = graftable_parameters(loaded.model)
    assert loaded.path == minilm
    assert len(graftable) == 6 * 16
    # Query, key, value and output; two feed-forward layers; two LayerNorms.
    block = 4 * (384 * 384 + 384) + (384 * 1536 + 1536) + (1536 * 384 + 384) + 2 * 2 * 384
    assert sum(p.numel() for p in graftable.values()) == 6 * block == 10_646_784
    texts = ["A man is playing a guitar.", "Someone plays an instrument.", "Shares fell sharply."]
    x = encode(loaded, texts)
    features = loaded.model.features(x[:, 0], x[:, 1]).detach()
    for row, text in zip(features, texts, strict=True):
        states = loaded.model.backbone(**loaded.tokenizer(text, return_tensors="pt"))
        torch.testing.assert_close(row, states.last_hidden_state[0].mean(0), rtol=1e-4, atol=1e-5)
    same, other = (F.cosine_similarity(features[0], features[i], dim=0) for i in (1, 2))
    assert same > 0.5 > 0.2 > other  # a real sentence encoder


@pytest.mark.parametrize("kind", ENCODERS)
def test_features_at_a_depth_are_the_pooled_states_after_that_block(request, kind):
    loaded = load(request, kind, "encoder", pooling="first")
    x = encode(loaded, TEXTS)
    seen: list[Tensor] = []
    blocks = [
        m for m in loaded.model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == 2
    ]
    for block in blocks[0]:
        block.register_forward_hook(
            lambda *call: seen.append(call[2][0] if isinstance(call[2], tuple) else call[2])
        )
    with torch.no_grad():
        last = loaded.model.text_features(x)
        after_one = seen[0][:, 0]
        assert torch.equal(loaded.model.features_at(x, 1.0), last)
        assert torch.equal(loaded.model.features_at(x, 0.6), after_one)
        assert torch.equal(loaded.model.features_at(x, 0.4), after_one)
        embedded = loaded.model.features_at(x, 0.0)
    # Embeddings know of no other token: the first one is the same in every text.
    torch.testing.assert_close(embedded, embedded[:1].expand_as(embedded))
    assert not torch.allclose(last, last[:1].expand_as(last))


@pytest.mark.parametrize(("kind", "longest"), [("bert", 256), ("roberta", 256), ("gpt2", None)])
def test_the_longest_row_is_what_the_positions_allow(request, kind, longest):
    model = load_model(str(request.getfixturevalue(f"tiny_{kind}"))).model
    assert longest_row(model) == (longest or model.backbone.config.max_position_embeddings)
    model.text_config.max_position_embeddings = -1  # as in XLNet's config
    assert longest_row(model) is None
