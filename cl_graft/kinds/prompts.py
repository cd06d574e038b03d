"""Prompts: a template around the texts, and one word (or string) for each label name.

A template is text with fields in braces, such as ``{text-}? {mask}, {text_pair_lower}``. A trailing
`-` drops the last character if it is punctuation (LM-BFF's code drops it whatever it is, and so
eats letters); `_lower` lower-cases the first letter. A masked-LM template holds `{mask}` exactly
once; behind a causal one the label's string follows. `{input}` and `{instruction}` are of text to
text.

Templates and words of the presets are LM-BFF's (Gao et al., 2021, https://arxiv.org/abs/2012.15723,
appendix B) with the additions of the grafting paper (https://arxiv.org/abs/2302.06600); the causal
ones are those of Holtzman et al. (https://arxiv.org/abs/2104.08315) as that paper uses them.
"""

import string
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Literal

from cl_graft.errors import InputError, nearest
from cl_graft.runtime.escaping import control_in

Family = Literal["encoder", "masked_lm", "causal_lm", "seq2seq_lm"]
"""Families of models, see `cl_graft.models.TaskModel`."""

_TEXT_FIELDS = (
    *(
        f"{column}{lower}{cut}"
        for column in ("text", "text_pair")
        for lower in ("", "_lower")
        for cut in ("", "-")
    ),
    *("input", "instruction"),
)


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece of a template: the literal text before a field, and the field ('' at the end)."""

    literal: str
    field: str


@dataclass(frozen=True)
class Prompt:
    """A template and the word of every label name.

    Raises:
        InputError: If the template has an unknown field, no text, or more than one mask; if a word
            is empty, or two label names share one.

    Examples:
        >>> words = {"positive": "great", "negative": "terrible"}
        >>> Prompt("{text} It was {mask}.", words).words["positive"]
        'great'
    """

    template: str
    words: Mapping[str, str] = field(hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.template, str):
            raise InputError(f"a prompt template must be a text, got {self.template!r}")
        object.__setattr__(self, "words", dict(self.words))
        fields = [piece.field for piece in self.pieces if piece.field]
        for name in fields:
            if name != "mask" and name not in _TEXT_FIELDS:
                raise InputError(
                    f"prompt template {self.template!r} has an unknown field {{{name}}}; "
                    f"{nearest(name, ('mask', *_TEXT_FIELDS))}"
                )
        if all(name == "mask" for name in fields):
            raise InputError(
                f"prompt template {self.template!r} holds no {{text}}, or {{input}} in a task of "
                "text to text"
            )
        if fields.count("mask") > 1:
            raise InputError(f"prompt template {self.template!r} holds {{mask}} more than once")
        # Lines and tabs are part of what a language model is asked.
        shown = self.template.replace("\n", " ").replace("\t", " ")
        for text in (shown, *self.words.values()):
            if character := control_in(text):
                raise InputError(f"prompt template or word {text!r} holds the control {character}")
        owners: dict[str, str] = {}
        for label_name, word in self.words.items():
            if not word.strip():
                raise InputError(f"prompt word of label {label_name!r} is empty")
            if word in owners:
                raise InputError(
                    f"labels {owners[word]!r} and {label_name!r} share the prompt word {word!r}, "
                    "so no answer could tell them apart"
                )
            owners[word] = label_name

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """The template cut at its fields."""
        try:
            parsed = list(string.Formatter().parse(self.template))
        except ValueError as error:
            raise InputError(f"prompt template {self.template!r}: {error}") from None
        for _, name, spec, conversion in parsed:
            if spec or conversion or name == "":
                raise InputError(
                    f"prompt template {self.template!r}: a field is a bare name in braces, "
                    "without ':' or '!'"
                )
        return tuple(Piece(literal, name or "") for literal, name, _, _ in parsed)

    @property
    def masked(self) -> bool:
        """Whether the template holds a mask."""
        return any(piece.field == "mask" for piece in self.pieces)

    @property
    def uses_pair(self) -> bool:
        """Whether the template holds the second text."""
        return any(is_of_second(piece.field) for piece in self.pieces)

    def words_for(self, label_names: Sequence[str]) -> tuple[str, ...]:
        """Return the words in the order of `label_names`.

        Raises:
            InputError: If a label name has no word.
        """
        for name in label_names:
            if name not in self.words:
                raise InputError(
                    f"the prompt {self.template!r} has no word for label {name!r}; it has words "
                    f"for {', '.join(map(repr, self.words)) or 'none'}"
                )
        return tuple(self.words[name] for name in label_names)


def is_of_second(name: str) -> bool:
    """Say whether a field stands for the second text of a row."""
    return name == "instruction" or name.startswith("text_pair")


def fill_field(name: str, text: str, text_pair: str | None) -> str:
    """Return what stands for the text field `name` in a row."""
    value = find_text(name, text, text_pair).strip()
    if name.endswith("-") and value and unicodedata.category(value[-1]).startswith("P"):
        value = value[:-1]
    if name.rstrip("-").endswith("_lower"):
        value = value[:1].lower() + value[1:]
    return value


def find_text(name: str, text: str, text_pair: str | None) -> str:
    """Return the text of a row that a text field is filled with, as the row has it."""
    if not is_of_second(name):
        return text
    if text_pair is None:
        raise InputError(f"the prompt uses {{{name}}}, but the row has one text only")
    return text_pair


def ending_space(text: str) -> str:
    """Return the white space that stays at the end of a prompt: blanks do not."""
    return text[len(text.rstrip()) :].rstrip(" ")


def default_prompts(label_names: Sequence[str], *, pair: bool) -> tuple[Prompt, Prompt]:
    """Return a masked and a causal prompt for a task without its own: names serve as words.

    Underscores of a name become spaces.
    """
    words = {name: name.replace("_", " ") for name in label_names}
    texts = "{text} {text_pair}" if pair else "{text}"
    return Prompt(f"{texts} This is {{mask}}.", words), Prompt(f"{texts}\n category:", words)


_SENTIMENT = {"negative": "terrible", "positive": "great"}
_ENTAILED = {"entailment": "Yes", "not_entailment": "No"}
_NLI = {"entailment": "Yes", "neutral": "Maybe", "contradiction": "No"}
_TOPICS = {"World": "World", "Sports": "Sports", "Business": "Business"}
_QUESTION_TYPES = {
    "abbreviation": "Expression",
    "entity": "Entity",
    "description": "Description",
    "human": "Human",
    "location": "Location",
    "number": "Number",
}

_REVIEW = "{text} It was {mask}."
_STATEMENT = "{text} This is {mask}."
_TOPIC = "{mask}: {text}"
_INFERENCE = "{text-}? {mask}, {text_pair_lower}"
_SAME = "{text} {mask}, {text_pair_lower}"

_REQUESTS = {
    "auto_and_commute": "Cars",
    "home": "Home",
    "kitchen_and_dining": "Food",
    "travel": "Travel",
    "work": "Work",
}

# cb takes MNLI's prompt; copa, wsc and the built-in tasks have prompts of our own. `banking` has
# none, as no label of it is one word.
PROMPTS: Mapping[str, Prompt] = MappingProxyType(
    {
        **{
            name: Prompt(_REVIEW, _SENTIMENT)
            for name in ("sst2", "sst2_sent", "mr", "cr", "mpqa", "imdb", "yelp_polarity")
        },
        "subj": Prompt(_STATEMENT, {"subjective": "subjective", "objective": "objective"}),
        "cola": Prompt(_STATEMENT, {"unacceptable": "incorrect", "acceptable": "correct"}),
        "trec": Prompt(_TOPIC, _QUESTION_TYPES),
        "ag_news": Prompt(_TOPIC, {**_TOPICS, "Sci/Tech": "Tech"}),
        **{name: Prompt(_INFERENCE, _NLI) for name in ("mnli", "snli", "cb")},
        **{name: Prompt(_INFERENCE, _ENTAILED) for name in ("qnli", "rte")},
        "mrpc": Prompt(_SAME, {"not_equivalent": "No", "equivalent": "Yes"}),
        "qqp": Prompt(_SAME, {"not_duplicate": "No", "duplicate": "Yes"}),
        "copa": Prompt("{text} {text_pair} Answer: {mask}", {"choice1": "1", "choice2": "2"}),
        "wsc": Prompt("{text} {text_pair} This is {mask}.", {"false": "false", "true": "true"}),
        "scope": Prompt("{text-}? {mask}.", {"in_scope": "Yes", "out_of_scope": "No"}),
        "topic": Prompt(_TOPIC, _REQUESTS),
        "entailment": Prompt(_INFERENCE, _NLI),
        "answered": Prompt(_INFERENCE, {"answered": "Yes", "not_answered": "No"}),
    }
)

_TONE = '"{text}" has a tone that is'
_TRUE_FALSE = " {text}\n question: {text_pair} true or false?\n answer:"
_TRUE_FALSE_NEITHER = " {text}\n question: {text_pair} true, false, or neither?\n answer:"
_TONES = {"negative": "negative", "positive": "positive"}
_TRUE_IF_ENTAILED = {"entailment": "true", "not_entailment": "false"}
_TRUE_OR_NEITHER = {"entailment": "true", "contradiction": "false", "neutral": "neither"}

# The published code answers Subj with the two strings swapped, and TREC with phrases in another
# order than the data's; here each string belongs to the label that it describes.
CAUSAL_PROMPTS: Mapping[str, Prompt] = MappingProxyType(
    {
        **{
            name: Prompt(_TONE, _TONES)
            for name in ("sst2", "sst2_sent", "mr", "cr", "mpqa", "imdb", "yelp_polarity")
        },
        "subj": Prompt(_TONE, {"subjective": "subject", "objective": "object"}),
        "cola": Prompt(
            '"{text}" is a sentence that is', {"unacceptable": "incorrect", "acceptable": "correct"}
        ),
        "trec": Prompt(
            " {text} The answer to this question will be",
            {
                "abbreviation": "an expression",
                "entity": "an entity",
                "description": "a description",
                "human": "a person",
                "location": "a location",
                "number": "a number",
            },
        ),
        "ag_news": Prompt(" summary: {text}\n topic:", {**_TOPICS, "Sci/Tech": "Science"}),
        **{name: Prompt(_TRUE_FALSE_NEITHER, _TRUE_OR_NEITHER) for name in ("mnli", "snli", "cb")},
        **{name: Prompt(_TRUE_FALSE, _TRUE_IF_ENTAILED) for name in ("qnli", "rte")},
        "mrpc": Prompt(_TRUE_FALSE, {"not_equivalent": "false", "equivalent": "true"}),
        "qqp": Prompt(_TRUE_FALSE, {"not_duplicate": "false", "duplicate": "true"}),
        "copa": Prompt(" {text}\n {text_pair}\n answer:", {"choice1": "1", "choice2": "2"}),
        "wsc": Prompt(_TRUE_FALSE, {"false": "false", "true": "true"}),
        "scope": Prompt(
            '"{text}" is a request that is', {"in_scope": "known", "out_of_scope": "unknown"}
        ),
        "topic": Prompt(" summary: {text}\n topic:", _REQUESTS),
        "entailment": Prompt(_TRUE_FALSE_NEITHER, _TRUE_OR_NEITHER),
        "answered": Prompt(
            " {text}\n {text_pair}\n answered:", {"answered": "yes", "not_answered": "no"}
        ),
    }
)
