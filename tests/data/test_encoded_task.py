"""A task's tokens out of the cache are those of the tokenizer, and only its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from cl_graft.data import Prompt, load_task
from cl_graft.data.encoded_task import EncodedTask, encode_task
from cl_graft.kinds.prompts import Family
from cl_graft.storage.cache_folder import DirectoryCache

WORDS = {"positive": "great", "negative": "terrible"}


@pytest.fixture(scope="module")
def task():
    made = load_task("sentiment", shots=6, data_seed=0, max_dev=9, max_test=9)
    return replace(
        made,
        prompt=Prompt("{text} It was {mask}.", WORDS),
        causal_prompt=Prompt("{text} It was", WORDS),
    )


def same(one: EncodedTask, other: EncodedTask) -> bool:
    pairs = [
        pair
        for name in one.splits
        for pair in zip(
            (*one.splits[name], one.rows[name]),
            (*other.splits[name], other.rows[name]),
            strict=True,
        )
    ]
    return one.label_tokens == other.label_tokens and all(
        a.dtype == b.dtype and torch.equal(a, b) for a, b in pairs
    )


@pytest.mark.parametrize(
    ("tokenizer", "family"),
    [
        ("wordpiece", "encoder"),
        ("roberta", "encoder"),
        ("roberta", "masked_lm"),
        ("gpt2", "causal_lm"),
    ],
)
def test_cached_tokens_are_those_of_the_tokenizer(task, tmp_path, request, tokenizer, family):
    chosen: dict[str, Any] = {"family": family, "max_length": 40}
    tokenizer = request.getfixturevalue(tokenizer)
    fresh = encode_task(task, tokenizer, **chosen)
    cache = DirectoryCache(tmp_path)
    assert same(encode_task(task, tokenizer, **chosen, cache=cache), fresh)
    assert same(encode_task(task, tokenizer, **chosen, cache=cache), fresh)
    assert cache.hits == {"tokens": 1}


def test_whatever_tokens_depend_on_is_part_of_their_name(task, tmp_path, roberta, wordpiece):
    def keys(task, tokenizer, *, family: Family = "encoder", max_length=40):
        cache = DirectoryCache(tmp_path / str(len(list(tmp_path.iterdir()))))
        encode_task(task, tokenizer, family=family, max_length=max_length, cache=cache)
        return {path.name for path in cache.folder.iterdir()}

    shouted = replace(task, train=(replace(task.train[0], text="x"), *task.train[1:]))
    prompt = Prompt("{text} All in all {mask}.", WORDS)
    names = [
        keys(task, roberta),
        keys(shouted, roberta),
        keys(task, wordpiece),
        keys(task, roberta, max_length=24),
        keys(task, roberta, family="masked_lm"),
        keys(replace(task, prompt=prompt), roberta, family="masked_lm"),
    ]
    assert len(set.union(*names)) == len(names)
    assert keys(replace(task, prompt=prompt), roberta) == names[0]


@pytest.mark.parametrize("keep", [0, 60, -1])
def test_a_damaged_file_of_tokens_is_tokenized_again(task, tmp_path, roberta, keep):
    chosen: dict[str, Any] = {
        "family": "encoder",
        "max_length": 40,
        "cache": DirectoryCache(tmp_path),
    }
    fresh = encode_task(task, roberta, **chosen)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:keep])
    assert same(encode_task(task, roberta, **chosen), fresh)
    assert same(encode_task(task, roberta, **chosen), fresh)
    assert chosen["cache"].hits == {"tokens": 1}


def test_a_word_that_does_not_fit_is_refused_before_anything_is_kept(task, tmp_path, roberta):
    bad = replace(task, prompt=Prompt("{text} {mask}", WORDS | {"positive": "xylophonically"}))
    cache = DirectoryCache(tmp_path / "cache")
    with pytest.raises(ValueError, match="must be one token"):
        encode_task(bad, roberta, family="masked_lm", max_length=40, cache=cache)
    assert not cache.folder.exists()
