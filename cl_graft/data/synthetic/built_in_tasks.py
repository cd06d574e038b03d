"""The built-in tasks by name, and the rows of each."""

from __future__ import annotations

from collections.abc import Mapping

from cl_graft.data.synthetic.answer_entailment import ANSWER_ENTAILMENT
from cl_graft.data.synthetic.generated_task import GeneratedTask, draw
from cl_graft.data.synthetic.long_streams import find_divided_task
from cl_graft.data.synthetic.paraphrase import PARAPHRASE
from cl_graft.data.synthetic.question_type import QUESTION_TYPE
from cl_graft.data.synthetic.sentiment import SENTIMENT
from cl_graft.data.synthetic.topic import TOPIC
from cl_graft.data.synthetic.urgency import URGENCY
from cl_graft.errors import InputError, nearest
from cl_graft.kinds.rows import Row

GENERATED: Mapping[str, GeneratedTask] = {
    task.name: task
    for task in (SENTIMENT, TOPIC, QUESTION_TYPE, ANSWER_ENTAILMENT, PARAPHRASE, URGENCY)
}
"""The built-in tasks by name, without the numbered ones of long streams."""


def find_generated(name: str) -> GeneratedTask | None:
    """Return the built-in or numbered task of a name; None if there is none.

    Examples:
        >>> find_generated("topic").label_names
        ('sport', 'business', 'science', 'food', 'music')
    """
    return GENERATED.get(name) or find_divided_task(name)


def generate(name: str, *, split: str, rows: int, seed: int) -> tuple[Row, ...]:
    """Draw the first `rows` rows of a built-in task's split; see `draw`.

    Raises:
        InputError: If the name or the split is unknown, or the grammar has not as many rows.

    Examples:
        >>> [row.text for row in generate("shared-0-0", split="test", rows=2, seed=0)]
        ['sisters sisters computers letters match', 'president home woman minutes shop']
    """
    task = find_generated(name)
    if task is None:
        raise InputError(f"no generated task {name!r}: {nearest(name, GENERATED)}")
    return draw(task, split=split, rows=rows, seed=seed)
