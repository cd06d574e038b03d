"""Templates are checked when they are written, and filled as LM-BFF fills them."""

import pytest

from cl_graft.data import BUILT_IN, PRESETS, load_task
from cl_graft.errors import InputError
from cl_graft.kinds.prompts import CAUSAL_PROMPTS, PROMPTS, Prompt, default_prompts, fill_field

WORDS = {"a": "Yes", "b": "No"}


@pytest.mark.parametrize(
    ("field", "filled"),
    [
        ("text", "Is it Late?"),
        ("text-", "Is it Late"),
        ("text_lower", "is it Late?"),
        ("text_lower-", "is it Late"),
        ("text_pair", "Yes it is"),
        ("text_pair-", "Yes it is"),
        ("text_pair_lower", "yes it is"),
    ],
)
def test_a_field_stands_for_its_text(field: str, filled: str):
    assert fill_field(field, "Is it Late?", "Yes it is") == filled
    assert Prompt(f"{{text}} {{{field}}} {{mask}}", WORDS).masked


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{txt} {mask}", r"unknown field \{txt\}; did you mean 'text'"),
        ("{mask} only", r"holds no \{text\}"),
        ("{text} {mask} {mask}", "more than once"),
        ("{text {mask}", "prompt template"),
        ("{text:>10} {mask}", "bare name"),
        ("{} {text}", "bare name"),
        ("{text!r}", "bare name"),
    ],
)
def test_a_faulty_template_is_refused(template: str, message: str):
    with pytest.raises(InputError, match=message):
        Prompt(template, WORDS).words_for(())


def test_words_that_are_empty_or_shared_are_refused():
    with pytest.raises(InputError, match="is empty"):
        Prompt("{text} {mask}", {"a": " "})
    with pytest.raises(InputError, match="share the prompt word 'Yes'"):
        Prompt("{text} {mask}", {"a": "Yes", "b": "Yes"})


def test_words_come_in_the_order_of_the_label_names():
    prompt = Prompt("{text} {mask}", WORDS)
    assert prompt.words_for(("b", "a")) == ("No", "Yes")
    with pytest.raises(InputError, match="no word for label 'c'"):
        prompt.words_for(("a", "c"))


def test_every_classification_task_has_a_prompt_of_both_kinds_with_its_label_names():
    known = {name: (one.label_names, one.pair) for name, one in PRESETS.items() if name != "stsb"}
    for name in PROMPTS.keys() & BUILT_IN.keys():
        task = load_task(name)
        known[name] = (task.label_names, task.train[0].text_pair is not None)
    assert set(PROMPTS) == set(CAUSAL_PROMPTS) == set(known)
    for name, (labels, pair) in known.items():
        masked, causal = PROMPTS[name], CAUSAL_PROMPTS[name]
        assert masked.masked
        assert not causal.masked
        for prompt in (masked, causal):
            assert set(prompt.words) == set(labels)
            assert prompt.uses_pair == pair


def test_a_task_of_ones_own_is_asked_for_its_label_names():
    masked, causal = default_prompts(("spam", "no_spam"), pair=False)
    assert masked.words_for(("no_spam", "spam")) == ("no spam", "spam")
    assert masked.masked
    assert not causal.masked
    assert not masked.uses_pair
    assert all(prompt.uses_pair for prompt in default_prompts(("a", "b"), pair=True))


def test_a_prompt_holds_lines_but_no_control_characters():
    assert Prompt("{text}\n\tIt was", {"a": "x"}).masked is False
    for template, word in [("{text} \x1b[2J", "x"), ("{text} \u202e", "x"), ("{text}", "a\nb")]:
        with pytest.raises(InputError, match=r"holds the control U\+"):
            Prompt(template, {"a": word})
