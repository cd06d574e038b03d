"""The data sets that have a name: the tasks in this package, and those of the two papers.

A built-in task is a folder of `built_in` with its rows; a preset is a row here with a data set's
columns, labels, metric, length and hub name.

Presets are the 13 tasks of the grafting paper (https://arxiv.org/abs/2302.06600, table 2), the 7 of
the SAM paper (https://arxiv.org/abs/2211.15583, table 1), and two sentiment sets that the first
uses out of distribution. Maximal lengths are LM-BFF's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cl_graft.data.record_files import Columns
from cl_graft.errors import join_names
from cl_graft.kinds.text_task import MAX_LENGTH

BUILT_IN: Mapping[str, Path] = MappingProxyType(
    {
        file.parent.name: file.parent
        for file in sorted(Path(__file__).parent.glob("built_in/*/meta.json"))
    }
)
"""Folders of the built-in tasks by name."""


@dataclass(frozen=True, kw_only=True)
class Preset:
    """Description of a data set, known before its files are read.

    Attributes:
        name: Name of the task.
        label_names: Names of the labels, in the order of class ids; empty for a regression.
        columns: Columns of the texts and of the label.
        metric: Name of the metric.
        positive: Label of which an F1 is taken; None where neither of two labels is positive.
        max_length: Tokens a row, special ones included.
        hub: Name of the data set on the hub, with ':' and a configuration where it has several;
            None where the hub has it in no form that is read here (COPA and WSC come in pieces).
        aliases: The preset's label names by their other spellings in data.
    """

    name: str
    label_names: tuple[str, ...]
    columns: Columns
    metric: str = "accuracy"
    positive: str | None = None
    max_length: int = MAX_LENGTH
    hub: str | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)

    @property
    def pair(self) -> bool:
        """Whether rows have two texts."""
        return self.columns.text_pair is not None

    def explain_misfit(self, label_names: Sequence[str], *, pair: bool) -> str:
        """Say why data are not this data set; empty if they are, with labels in whatever order."""
        if pair != self.pair:
            count = {True: "two texts a row", False: "one text a row"}
            return f"it has {count[self.pair]}, but these data {count[pair]}"
        if set(label_names) != set(self.label_names):
            return (
                f"it has the labels {join_names(self.label_names) or '(numbers)'}, but these data "
                f"{join_names(label_names) or '(numbers)'}"
            )
        return ""


def _preset(
    name: str, texts: str, label_names: tuple[str, ...], *, label: str = "label", **known: Any
) -> Preset:
    """Make a preset of the columns of its texts, parted by a blank, and of its label."""
    text, _, text_pair = texts.partition(" ")
    columns = Columns(text=text, text_pair=text_pair or None, label=label)
    return Preset(name=name, label_names=label_names, columns=columns, **known)


_SENTIMENT: Mapping[str, Any] = {"label_names": ("negative", "positive"), "positive": "positive"}
_POLARITY = MappingProxyType({"neg": "negative", "pos": "positive"})
_TOPICS = MappingProxyType({"Tech": "Sci/Tech", "Sci_Tech": "Sci/Tech", "Science": "Sci/Tech"})
_NLI: Mapping[str, Any] = {
    "label_names": ("entailment", "neutral", "contradiction"),
    "max_length": 256,
}
_ENTAILED: Mapping[str, Any] = {
    "label_names": ("entailment", "not_entailment"),
    "positive": "entailment",
}
_TREC = MappingProxyType(
    {
        "ABBR": "abbreviation",
        "ENTY": "entity",
        "DESC": "description",
        "HUM": "human",
        "LOC": "location",
        "NUM": "number",
    }
)
_SENTENCES = "sentence1 sentence2"

_ROWS = (
    _preset("sst2", "sentence", hub="nyu-mll/glue:sst2", **_SENTIMENT),
    _preset("sst2_sent", "text", hub="SetFit/sst2", **_SENTIMENT),
    _preset(
        "mr",
        "text",
        hub="cornell-movie-review-data/rotten_tomatoes",
        aliases=_POLARITY,
        **_SENTIMENT,
    ),
    _preset("cr", "text", hub="SetFit/CR", **_SENTIMENT),
    _preset("mpqa", "text", **_SENTIMENT),
    _preset("subj", "text", ("subjective", "objective"), label="label_text", hub="SetFit/subj"),
    _preset(
        "trec",
        "text",
        tuple(_TREC.values()),
        label="coarse_label",
        hub="CogComp/trec",
        aliases=_TREC,
    ),
    _preset(
        "ag_news",
        "text",
        ("World", "Sports", "Business", "Sci/Tech"),
        hub="fancyzhx/ag_news",
        aliases=_TOPICS,
    ),
    _preset("imdb", "text", hub="stanfordnlp/imdb", aliases=_POLARITY, **_SENTIMENT),
    _preset(
        "yelp_polarity",
        "text",
        hub="fancyzhx/yelp_polarity",
        aliases={"1": "negative", "2": "positive"},
        **_SENTIMENT,
    ),
    _preset("qnli", "question sentence", hub="nyu-mll/glue:qnli", **_ENTAILED),
    _preset("rte", _SENTENCES, max_length=256, hub="nyu-mll/glue:rte", **_ENTAILED),
    _preset("snli", "premise hypothesis", hub="stanfordnlp/snli", **_NLI),
    _preset("mnli", "premise hypothesis", hub="nyu-mll/glue:mnli", **_NLI),
    _preset(
        "mrpc",
        _SENTENCES,
        ("not_equivalent", "equivalent"),
        positive="equivalent",
        metric="f1",
        hub="nyu-mll/glue:mrpc",
    ),
    _preset(
        "qqp",
        "question1 question2",
        ("not_duplicate", "duplicate"),
        positive="duplicate",
        metric="f1",
        hub="nyu-mll/glue:qqp",
    ),
    _preset(
        "cola",
        "sentence",
        ("unacceptable", "acceptable"),
        positive="acceptable",
        metric="matthews",
        hub="nyu-mll/glue:cola",
    ),
    _preset("stsb", _SENTENCES, (), metric="pearson", hub="nyu-mll/glue:stsb"),
    _preset(
        "cb",
        "premise hypothesis",
        ("entailment", "contradiction", "neutral"),
        max_length=256,
        hub="aps/super_glue:cb",
    ),
    _preset("copa", "text text_pair", ("choice1", "choice2")),
    _preset(
        "wsc",
        "text text_pair",
        ("false", "true"),
        positive="true",
        aliases={"False": "false", "True": "true"},
    ),
)
PRESETS: Mapping[str, Preset] = MappingProxyType({preset.name: preset for preset in _ROWS})
"""Presets by name."""
