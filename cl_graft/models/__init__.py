"""Models: pretrained transformers that answer tasks, and what is graftable in them."""

from cl_graft.models.graftable import block_stacks, graftable_parameters
from cl_graft.models.heads import LabelStrings, LabelWords, linear_head, make_head
from cl_graft.models.load import (
    Loaded,
    check_head,
    find_fetched,
    find_minilm,
    load_head,
    load_model,
)
from cl_graft.models.task_model import TaskModel, longest_row
from cl_graft.models.task_server import TaskServer

__all__ = [
    "LabelStrings",
    "LabelWords",
    "Loaded",
    "TaskModel",
    "TaskServer",
    "block_stacks",
    "check_head",
    "find_fetched",
    "find_minilm",
    "graftable_parameters",
    "linear_head",
    "load_head",
    "load_model",
    "longest_row",
    "make_head",
]
