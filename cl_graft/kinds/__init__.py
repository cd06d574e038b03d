"""Kinds of tasks, one file each: what a row holds, how it is encoded, answered and scored."""

from cl_graft.kinds.kind import KINDS, Kind, find_kind, register_kind
from cl_graft.kinds.prompts import CAUSAL_PROMPTS, PROMPTS, Prompt
from cl_graft.kinds.rows import Answer, ColumnError, EncodedRows, Row, Span
from cl_graft.kinds.text2text import Decoding
from cl_graft.kinds.text_encoding import Encoding, encode, encode_for, label_token_ids
from cl_graft.kinds.text_task import TextTask, number_classes, share_labels

__all__ = [
    "CAUSAL_PROMPTS",
    "KINDS",
    "PROMPTS",
    "Answer",
    "ColumnError",
    "Decoding",
    "EncodedRows",
    "Encoding",
    "Kind",
    "Prompt",
    "Row",
    "Span",
    "TextTask",
    "encode",
    "encode_for",
    "find_kind",
    "label_token_ids",
    "number_classes",
    "register_kind",
    "share_labels",
]
