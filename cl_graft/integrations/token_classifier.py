"""The conversion of a head of tags to the token classifiers of transformers.

`AutoModelForTokenClassification` puts a linear layer on the last states of all tokens, as
`TaggingHead` does. It has no place for the intent of a row, so the layer of the intents is written
beside it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cl_graft.errors import DamagedFile
from cl_graft.grafts.bank import Entry
from cl_graft.integrations.whole_models import put_on_tokens
from cl_graft.models import TaskModel
from cl_graft.runtime.escaping import for_python

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["as_token_classifier", "tagging_code"]

_ANSWER = """\
@torch.no_grad()
def answer(text, pair=None):  # RESULT
    words = text.split()
    options = {"truncation": True, "max_length": LENGTH, "split_special_tokens": True}
    more = {"return_offsets_mapping": True, "return_special_tokens_mask": True}
    batch = tokenizer(" ".join(words), **options, **more)
    inputs = {name: torch.tensor([batch[name]]) for name in tokenizer.model_input_names}
    LOGITS
    found, start = [], 0
    for word in words:
        places = zip(batch.offset_mapping, batch.special_tokens_mask)
        within = [n for n, ((a, b), special) in enumerate(places) if not special and b > start]
        own = [n for n in within if batch.offset_mapping[n][0] < start + len(word)]
        found.append(tags[int(logits[own[0]].argmax())] if own else "O")
        start += len(word) + 1
    return ANSWER"""


def as_token_classifier(model: TaskModel, entry: Entry) -> PreTrainedModel | None:
    """Make the token classifier of transformers that tags as an encoder with an entry's head.

    Args:
        model: The encoder, carrying the entry.
        entry: Entry with a head of tags; a layer of intents is left out.

    Returns:
        The classifier, in eval mode, on the CPU; None if transformers has none.
    """
    from transformers import AutoModelForTokenClassification

    config: Any = copy.deepcopy(model.backbone.config)
    config.id2label = dict(enumerate(_tag_names(entry.metadata)))
    config.label2id = {name: number for number, name in config.id2label.items()}
    layer = {part: entry.head[f"tags.{part}"] for part in ("weight", "bias")}
    return put_on_tokens(AutoModelForTokenClassification, config, model.backbone, layer)


def tagging_code(record: Mapping[str, Any], *, length: int) -> list[str]:
    """Write the lines that define `answer(text)`: tags of words, and the intent where there is one.

    Args:
        record: Content of `task.json`.
        length: Tokens of a row.
    """
    intents, classifier = record.get("intent_names"), bool(record.get("classifier"))
    lines = []
    if intents or not classifier:
        base = "model.base_model" if classifier else "model"
        lines.append(f"states = {base}(**inputs).last_hidden_state[0]")
    if classifier:
        lines.append("logits = model(**inputs).logits[0]")
    else:
        lines += _linear("logits", "states", "tags")
    if intents:
        lines += [*_linear("scores", "states[0]", "intents"), "intent = intents[scores.argmax()]"]
    code = _ANSWER.replace("LOGITS", "\n    ".join(lines)).replace("LENGTH", for_python(length))
    code = code.replace("ANSWER", "found, intent" if intents else "found")
    result = "a tag for each word, and the intent" if intents else "a tag for each word"
    code = code.replace("RESULT", f"{result}; blanks part words")
    named = [f"intents = {for_python(list(intents))}"] if intents else []
    return [f"tags = {for_python(_tag_names(record))}", *named, "", "", *code.splitlines()]


def _tag_names(metadata: Mapping[str, Any]) -> list[str]:
    if names := metadata.get("label_names"):
        return [str(name) for name in names]
    raise DamagedFile("the entry is damaged: it does not say what its tags are called")


def _linear(name: str, states: str, part: str) -> list[str]:
    weight, bias = f'head["{part}.weight"]', f'head["{part}.bias"]'
    return [
        f"taken = {states}.to({weight}.dtype)",
        f"{name} = torch.nn.functional.linear(taken, {weight}, {bias}).float()",
    ]
