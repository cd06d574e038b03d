"""The conversion of a head of spans to the question answering models of transformers.

`AutoModelForQuestionAnswering` puts a linear layer of two outputs on the last states of all tokens,
as `SpanHead` does; it differs in that it hides no token.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cl_graft.grafts.bank import Entry
from cl_graft.integrations.whole_models import put_on_tokens
from cl_graft.models import TaskModel
from cl_graft.runtime.escaping import for_python

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["answering_code", "as_question_answering"]

_ANSWER = """\
@torch.no_grad()
def find_ends(batch, window):  # a number for each token: of the answer's start, and of its end
    inputs = {name: torch.tensor([batch[name][window]]) for name in tokenizer.model_input_names}
    LOGITS


def answer(question, passage):  # the text of the surest span of all windows of the passage
    pieces = tokenizer(question, add_special_tokens=False, return_offsets_mapping=True)
    ends = [stop for _, stop in pieces.offset_mapping]
    question = question[: ends[MOST - 1]] if len(ends) > MOST else question
    room = LENGTH - MOST - tokenizer.num_special_tokens_to_add(pair=True)
    stride = min(LENGTH // 3, room // 2 + room // 4)
    cut = {"truncation": "only_second", "max_length": LENGTH, "stride": stride}
    more = {"return_overflowing_tokens": True, "return_offsets_mapping": True}
    batch = tokenizer(question, passage, split_special_tokens=True, **cut, **more)
    best, found = float("-inf"), (0, 0)
    for window, places in enumerate(batch.offset_mapping):
        starts, ends = find_ends(batch, window)
        columns = [n for n, part in enumerate(batch.sequence_ids(window)) if part == 1]
        for first in columns:
            for last in columns[first - columns[0] :][:LONGEST]:
                if starts[first] + ends[last] > best:
                    best, found = starts[first] + ends[last], (places[first][0], places[last][1])
    start, stop = found
    while start < stop < len(passage) and unicodedata.category(passage[stop])[0] == "M":
        stop += 1  # marks on the last letter, which a tokenizer may drop
    return passage[start:stop].strip()"""


def as_question_answering(model: TaskModel, entry: Entry) -> PreTrainedModel | None:
    """Make the question answering model of transformers that answers as an entry does.

    Args:
        model: The encoder, carrying the entry.
        entry: Entry with a head of spans.

    Returns:
        The model, in eval mode, on the CPU; None if transformers has none.
    """
    from transformers import AutoModelForQuestionAnswering

    config: Any = copy.deepcopy(model.backbone.config)
    config.num_labels = 2
    layer = {part: entry.head[f"ends.{part}"] for part in ("weight", "bias")}
    return put_on_tokens(AutoModelForQuestionAnswering, config, model.backbone, layer)


def answering_code(record: Mapping[str, Any], *, length: int) -> list[str]:
    """Write the lines that define `answer(question, passage)`.

    Args:
        record: Content of `task.json`.
        length: Tokens of a window.
    """
    if record.get("classifier"):
        logits = [
            "found = model(**inputs)",
            "return [side[0].float().tolist() for side in (found.start_logits, found.end_logits)]",
        ]
    else:
        logits = [
            'weight, bias = head["ends.weight"], head["ends.bias"]',
            "states = model(**inputs).last_hidden_state[0].to(weight.dtype)",
            "return torch.nn.functional.linear(states, weight, bias).T.float().tolist()",
        ]
    code = _ANSWER.replace("LOGITS", "\n    ".join(logits))
    code = code.replace("LONGEST", for_python(record.get("longest_answer", 30)))
    code = code.replace("MOST", for_python(length // 2)).replace("LENGTH", for_python(length))
    return code.splitlines()
