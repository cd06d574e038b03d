"""The data sets of the two papers, one row each: columns, labels, metric, length, hub name.

These are the 13 tasks of the grafting paper (https://arxiv.org/abs/2302.06600, table 2), the 7 of
the SAM paper (https://arxiv.org/abs/2211.15583, table 1), and two sentiment sets that the first
uses out of distribution. Prompts stand in `cl_graft.data.prompts` under the same names.

A preset holds for data that fit it: of one or two texts as it has, with its labels. The data's own
order of label names decides class ids; a preset's order is for data that declares none. Data of
one's own that only have a preset's name are read as any others. Maximal lengths are LM-BFF's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from cl_graft.data.columns import Columns, LabelledRows
from cl_graft.errors import listed

__all__ = ["PRESETS", "Preset", "explain_misfit"]


@dataclass(frozen=True, kw_only=True)
class Preset:
    """What is known of a data set before its files are read.

    `hub` is the data set's name on the hub, with ':' and a configuration where it has several;
    None where the hub has it in no form that is read here (COPA and WSC come there in pieces).
    `positive` is the label of which an F1 is taken; None where neither of two labels is.
    `aliases` map other spellings of label names to the preset's.
    """

    name: str
    label_names: tuple[str, ...]
    columns: Columns
    metric: str = "accuracy"
    positive: str | None = None
    max_length: int = 128
    hub: str | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)

    @property
    def regression(self) -> bool:
        """Whether labels are numbers to predict."""
        return not self.label_names

    @property
    def pair(self) -> bool:
        """Whether rows have two texts."""
        return self.columns.text_pair is not None


def explain_misfit(preset: Preset, rows: LabelledRows) -> str:
    """Say why rows are not a preset's data; nothing if they are, with labels in whatever order."""
    pair = rows.columns.text_pair is not None
    if pair != preset.pair:
        count = {True: "two texts a row", False: "one text a row"}
        return f"it has {count[preset.pair]}, but these data {count[pair]}"
    if set(rows.label_names) != set(preset.label_names):
        return (
            f"it has the labels {listed(preset.label_names) or '(numbers)'}, but these data "
            f"{listed(rows.label_names) or '(numbers)'}"
        )
    return ""


def _single(text: str) -> Columns:
    return Columns(text=text, label="label")


def _pair(text: str, text_pair: str) -> Columns:
    return Columns(text=text, text_pair=text_pair, label="label")


_SENTIMENT = ("negative", "positive")
_POLARITY = MappingProxyType({"neg": "negative", "pos": "positive"})
_NLI = ("entailment", "neutral", "contradiction")
_ENTAILED = ("entailment", "not_entailment")
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

PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        preset.name: preset
        for preset in (
            Preset(
                name="sst2",
                label_names=_SENTIMENT,
                positive="positive",
                columns=_single("sentence"),
                hub="nyu-mll/glue:sst2",
            ),
            Preset(
                name="sst2_sent",
                label_names=_SENTIMENT,
                positive="positive",
                columns=_single("text"),
                hub="SetFit/sst2",
            ),
            Preset(
                name="mr",
                label_names=_SENTIMENT,
                positive="positive",
                columns=_single("text"),
                hub="cornell-movie-review-data/rotten_tomatoes",
                aliases=_POLARITY,
            ),
            Preset(
                name="cr",
                label_names=_SENTIMENT,
                positive="positive",
                columns=_single("text"),
                hub="SetFit/CR",
            ),
            Preset(
                name="mpqa", label_names=_SENTIMENT, positive="positive", columns=_single("text")
            ),
            Preset(
                name="subj",
                label_names=("subjective", "objective"),
                columns=Columns(text="text", label="label_text"),
                hub="SetFit/subj",
            ),
            Preset(
                name="trec",
                label_names=tuple(_TREC.values()),
                columns=Columns(text="text", label="coarse_label"),
                hub="CogComp/trec",
                aliases=_TREC,
            ),
            Preset(
                name="ag_news",
                label_names=("World", "Sports", "Business", "Sci/Tech"),
                columns=_single("text"),
                hub="fancyzhx/ag_news",
                aliases={"Tech": "Sci/Tech", "Sci_Tech": "Sci/Tech", "Science": "Sci/Tech"},
            ),
            Preset(
                name="imdb",
                label_names=_SENTIMENT,
                positive="positive",
                columns=_single("text"),
                hub="stanfordnlp/imdb",
                aliases=_POLARITY,
            ),
            Preset(
                name="yelp_polarity",
                label_names=_SENTIMENT,
                positive="positive",
                columns=_single("text"),
                hub="fancyzhx/yelp_polarity",
                aliases={"1": "negative", "2": "positive"},
            ),
            Preset(
                name="qnli",
                label_names=_ENTAILED,
                positive="entailment",
                columns=_pair("question", "sentence"),
                hub="nyu-mll/glue:qnli",
            ),
            Preset(
                name="rte",
                label_names=_ENTAILED,
                positive="entailment",
                columns=_pair("sentence1", "sentence2"),
                max_length=256,
                hub="nyu-mll/glue:rte",
            ),
            Preset(
                name="snli",
                label_names=_NLI,
                columns=_pair("premise", "hypothesis"),
                max_length=256,
                hub="stanfordnlp/snli",
            ),
            Preset(
                name="mnli",
                label_names=_NLI,
                columns=_pair("premise", "hypothesis"),
                max_length=256,
                hub="nyu-mll/glue:mnli",
            ),
            Preset(
                name="mrpc",
                label_names=("not_equivalent", "equivalent"),
                positive="equivalent",
                columns=_pair("sentence1", "sentence2"),
                metric="f1",
                hub="nyu-mll/glue:mrpc",
            ),
            Preset(
                name="qqp",
                label_names=("not_duplicate", "duplicate"),
                positive="duplicate",
                columns=_pair("question1", "question2"),
                metric="f1",
                hub="nyu-mll/glue:qqp",
            ),
            Preset(
                name="cola",
                label_names=("unacceptable", "acceptable"),
                positive="acceptable",
                columns=_single("sentence"),
                metric="matthews",
                hub="nyu-mll/glue:cola",
            ),
            Preset(
                name="stsb",
                label_names=(),
                columns=_pair("sentence1", "sentence2"),
                metric="pearson",
                hub="nyu-mll/glue:stsb",
            ),
            Preset(
                name="cb",
                label_names=("entailment", "contradiction", "neutral"),
                columns=_pair("premise", "hypothesis"),
                max_length=256,
                hub="aps/super_glue:cb",
            ),
            Preset(
                name="copa",
                label_names=("choice1", "choice2"),
                columns=_pair("text", "text_pair"),
            ),
            Preset(
                name="wsc",
                label_names=("false", "true"),
                positive="true",
                columns=_pair("text", "text_pair"),
                aliases={"False": "false", "True": "true"},
            ),
        )
    }
)
