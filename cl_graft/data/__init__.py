"""Text tasks: rows from files, the hub or this package, few-shot samples, prompts and token ids.

Nothing here imports transformers or datasets before a function needs them.
"""

from cl_graft.data.dataset_presets import BUILT_IN, PRESETS, Preset
from cl_graft.data.few_shot import few_shot
from cl_graft.data.load import load_task
from cl_graft.data.streams import STREAMS, Stream, register_stream
from cl_graft.data.task_settings import TaskSettings
from cl_graft.kinds import (
    CAUSAL_PROMPTS,
    PROMPTS,
    Prompt,
    Row,
    TextTask,
    encode,
    label_token_ids,
    number_classes,
    share_labels,
)

__all__ = [
    "BUILT_IN",
    "CAUSAL_PROMPTS",
    "PRESETS",
    "PROMPTS",
    "STREAMS",
    "Preset",
    "Prompt",
    "Row",
    "Stream",
    "TaskSettings",
    "TextTask",
    "encode",
    "few_shot",
    "label_token_ids",
    "load_task",
    "number_classes",
    "register_stream",
    "share_labels",
]
