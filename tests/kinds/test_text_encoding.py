"""Token ids of rows: what tokenizers give, cut where it may be cut, free of smuggled tokens."""

import os

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cl_graft.errors import InputError
from cl_graft.kinds import Prompt, Row, encode, label_token_ids

STORIES = pytest.param(
    "stories",
    marks=pytest.mark.skipif(
        "CL_GRAFT_MODELS" not in os.environ, reason="CL_GRAFT_MODELS is not set"
    ),
)

REVIEW = Prompt("{text} It was {mask}.", {"negative": "terrible", "positive": "great"})
TOPIC = Prompt("{mask}: {text}", {"a": "Yes", "b": "No"})
PAIR = Prompt("{text-}? {mask}, {text_pair_lower}", {"a": "Yes", "b": "No"})
TRUE_FALSE = Prompt(
    " {text}\n question: {text_pair} true or false?\n answer:", {"a": "true", "b": "false"}
)
TONE = Prompt('"{text}" has a tone that is', {"negative": "negative", "positive": "positive"})

SINGLE = [Row("The film was great, said the man", None, 0), Row("rain — and  wind (café)", None, 1)]
PAIRS = [
    Row("Which river flows there?", "The river that flows there is narrow.", 0),
    Row("It is", "Nobody would open the door!", 1),
]
LONG = "the river that flows through the old town is narrow and nobody would open the door " * 20


def ids_of(encoded: torch.Tensor, index: int = 0) -> list[int]:
    return encoded[index, 0][encoded[index, 1] > 0].tolist()


@pytest.fixture(params=["roberta", "wordpiece"])
def masked(request: pytest.FixtureRequest):
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["gpt2", STORIES])
def causal(request: pytest.FixtureRequest):
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["roberta", "wordpiece", "gpt2", STORIES])
def any_tokenizer(request: pytest.FixtureRequest):
    return request.getfixturevalue(request.param)


def test_a_masked_prompt_has_the_ids_of_the_tokenizer_on_the_filled_template(masked):
    mask = masked.mask_token
    pairs = [
        f"Which river flows there? {mask}, the river that flows there is narrow.",
        f"It is? {mask}, nobody would open the door!",
    ]
    for rows, prompt, strings in (
        (SINGLE, REVIEW, [f"{row.text} It was {mask}." for row in SINGLE]),
        (SINGLE, TOPIC, [f"{mask}: {row.text}" for row in SINGLE]),
        (PAIRS, PAIR, pairs),
    ):
        encoded = encode(rows, masked, family="masked_lm", prompt=prompt, max_length=64)
        assert [ids_of(encoded, n) for n in (0, 1)] == [masked(s)["input_ids"] for s in strings]


def test_a_causal_prompt_has_the_ids_of_the_tokenizer_on_the_filled_template(causal):
    asked = " {}\n question: {} true or false?\n answer:"
    for rows, prompt, strings in (
        (SINGLE, TONE, [f'"{row.text}" has a tone that is' for row in SINGLE]),
        (PAIRS, TRUE_FALSE, [asked.format(row.text, row.text_pair) for row in PAIRS]),
    ):
        encoded = encode(rows, causal, family="causal_lm", prompt=prompt, max_length=128)
        assert [ids_of(encoded, n) for n in (0, 1)] == [causal(s)["input_ids"] for s in strings]


def test_an_encoder_gets_what_the_tokenizer_gives_with_token_types_as_segments(any_tokenizer):
    for rows in (SINGLE, PAIRS):
        encoded = encode(rows, any_tokenizer, family="encoder", max_length=64)
        for index, row in enumerate(rows):
            alone = any_tokenizer(row.text, row.text_pair)
            length = len(alone["input_ids"])
            assert ids_of(encoded, index) == alone["input_ids"]
            types = alone.get("token_type_ids") or [0] * length
            assert encoded[index, 1, :length].tolist() == [kind + 1 for kind in types]


def test_padding_is_on_the_right_with_segment_0_and_the_padding_token(roberta, gpt2):
    for tokenizer, padding in ((roberta, roberta.pad_token_id), (gpt2, 0)):
        encoded = encode(SINGLE, tokenizer, family="encoder", max_length=90)
        assert encoded.shape == (2, 2, 90)
        assert encoded.dtype == torch.int64
        for ids, segments in encoded:
            length = int((segments > 0).sum())
            assert (segments[:length] > 0).all()
            assert (segments[length:] == 0).all()
            assert (ids[length:] == padding).all()


@pytest.mark.parametrize("prompt", [REVIEW, TOPIC, PAIR])
@pytest.mark.parametrize("max_length", [14, 20, 33])
def test_a_masked_prompt_is_cut_in_its_texts_and_never_in_its_template(masked, prompt, max_length):
    rows = [Row(LONG, LONG, 0)]
    encoded = encode(rows, masked, family="masked_lm", prompt=prompt, max_length=max_length)
    ids = ids_of(encoded)
    assert len(ids) == max_length
    assert ids.count(masked.mask_token_id) == 1
    assert ids[0] == masked.cls_token_id
    assert ids[-1] == masked.sep_token_id
    if prompt is REVIEW:
        ending = masked("x It was " + masked.mask_token + ".")["input_ids"][2:]
        assert ids[-len(ending) :] == ending
    if prompt is PAIR:
        at = ids.index(masked.mask_token_id)
        assert ids[at - 1] == masked("x?")["input_ids"][-2]
        # Both texts are equally long, so they keep equally many tokens, or one more of the second.
        first, second = at - 2, len(ids) - at - 3
        assert abs(first - second) <= 1


def test_the_longer_text_is_cut_first(roberta):
    rows = [Row("It is", LONG, 0)]
    encoded = encode(rows, roberta, family="masked_lm", prompt=PAIR, max_length=24)
    assert roberta.decode(ids_of(encoded)).startswith("<s>It is?<mask>, the river")


def test_the_end_of_a_causal_template_is_never_cut(causal):
    ending = causal("x true or false?\n answer:")["input_ids"][-5:]
    rows = [Row(LONG, LONG, 0)]
    encoded = encode(rows, causal, family="causal_lm", prompt=TRUE_FALSE, max_length=90)
    ids = ids_of(encoded)
    assert len(ids) == 90
    assert ids[-5:] == ending


def test_special_tokens_in_a_text_are_plain_characters(any_tokenizer):
    special = any_tokenizer.all_special_tokens
    rows = [Row(f"a {' '.join(special)} b{''.join(special)}", None, 0)]
    plain = encode([Row("a b", None, 0)], any_tokenizer, family="encoder", max_length=200)
    encoded = encode(rows, any_tokenizer, family="encoder", max_length=200)
    specials = set(any_tokenizer.all_special_ids)
    found, expected = ([i for i in ids_of(x) if i in specials] for x in (encoded, plain))
    assert found == expected


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(min_size=1, max_size=80), extra=st.sampled_from(["<mask>", "[MASK]", "</s>"]))
def test_whatever_the_text_a_masked_prompt_holds_one_mask_and_one_frame(masked, text, extra):
    rows = [Row(text + extra + text, extra + text, 0)]
    for prompt in (REVIEW, PAIR):
        encoded = encode(rows, masked, family="masked_lm", prompt=prompt, max_length=24)
        ids = ids_of(encoded)
        for token in (masked.mask_token_id, masked.cls_token_id, masked.sep_token_id):
            assert ids.count(token) == 1


def test_encoding_leaves_the_tokenizer_as_it_was(masked):
    text = f"one {masked.mask_token} two"
    before = masked(text)["input_ids"]
    encode([Row(LONG, None, 0)], masked, family="masked_lm", prompt=REVIEW, max_length=16)
    encode([Row(LONG, None, 0)], masked, family="encoder", max_length=16)
    assert masked(text)["input_ids"] == before


def test_the_word_of_a_label_is_the_token_that_follows_a_space(roberta, wordpiece):
    words = label_token_ids(roberta, REVIEW, ("positive", "negative"), family="masked_lm")
    assert roberta.convert_ids_to_tokens([i for (i,) in words]) == ["Ġgreat", "Ġterrible"]
    words = label_token_ids(wordpiece, REVIEW, ("negative", "positive"), family="masked_lm")
    assert wordpiece.convert_ids_to_tokens([i for (i,) in words]) == ["terrible", "great"]


def test_a_causal_label_continues_the_template_as_the_tokenizer_would(causal):
    answers = label_token_ids(causal, TRUE_FALSE, ("a", "b"), family="causal_lm")
    encoded = encode(PAIRS, causal, family="causal_lm", prompt=TRUE_FALSE, max_length=128)
    for word, answer in zip(("true", "false"), answers, strict=True):
        row = PAIRS[0]
        text = f" {row.text}\n question: {row.text_pair} true or false?\n answer: {word}"
        assert [*ids_of(encoded), *answer] == causal(text)["input_ids"]


def test_a_word_of_several_tokens_and_words_with_the_same_ones_are_refused(roberta, wordpiece):
    long = "antidisestablishmentarian"
    for tokenizer, words, message in (
        (roberta, ("great", long), f"'{long}' of label 'b' must be one"),
        (wordpiece, ("great", long), f"'{long}' of label 'b' must be one"),
        (wordpiece, ("Yes", "yes"), "same tokens"),
    ):
        prompt = Prompt("{text} {mask}", dict(zip("ab", words, strict=True)))
        with pytest.raises(InputError, match=message):
            label_token_ids(tokenizer, prompt, ("a", "b"), family="masked_lm")


def test_a_prompt_or_a_length_that_does_not_fit_is_refused(roberta, gpt2):
    fine, long = [Row("fine", None, 0)], [Row(LONG, None, 0)]
    for rows, tokenizer, family, prompt, max_length, message in (
        (SINGLE, roberta, "masked_lm", TONE, 32, "lacks"),
        (SINGLE, gpt2, "causal_lm", REVIEW, 32, "holds"),
        (SINGLE, gpt2, "causal_lm", None, 32, "needs a prompt"),
        (SINGLE, gpt2, "masked_lm", REVIEW, 32, "no mask token"),
        (SINGLE, roberta, "masked_lm", PAIR, 32, "one text only"),
        (long, roberta, "masked_lm", REVIEW, 6, "leaves no room"),
        (fine, roberta, "encoder", None, 1, "max_length 1 leaves no room beside a row's special"),
    ):
        with pytest.raises(InputError, match=message):
            encode(rows, tokenizer, family=family, prompt=prompt, max_length=max_length)
