"""Settings of a task: which columns its rows are of, what they mean, and how many are taken."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, InstanceOf, field_validator

from cl_graft.kinds.prompts import Prompt
from cl_graft.runtime.settings import settings_class


@settings_class
class RowSettings:
    """Columns, labels and metric of a task, where its preset (or the default) does not fit."""

    text: str | None = Field(default=None, description="Column of the first text.")
    text_pair: str | None = Field(default=None, description="Column of the second text.")
    label: str | None = Field(default=None, description="Column of the label.")
    where: dict[str, str] | None = Field(
        default=None,
        description="Values by column, such as {domain: banking}: only rows with these values are "
        "taken, and the labels of these rows are the task's labels.",
    )
    label_names: list[str] | None = Field(
        default=None,
        description="Label names in the order of the class ids; of a multi-label task they may "
        "be columns of 0 and 1.",
    )
    metric: str | None = Field(
        default=None,
        description="Metric of the task's score: accuracy, f1, matthews, or a registered one.",
    )
    kind: str | None = Field(
        default=None,
        description="Kind of the task: classification, regression, tagging, extractive_qa, "
        "text2text, multi_label, or a registered one; null means that the data's columns decide.",
    )
    positive: str | None = Field(
        default=None,
        description="The positive label of the metric f1 with two labels; null takes that of the "
        "data or the preset, or else the second label.",
    )
    template: str | None = Field(
        default=None,
        description="Prompt of a text-to-text task, with {input} and {instruction} in it.",
    )
    instruction: str | None = Field(
        default=None,
        description="Instruction of every row of a text-to-text task, in place of the data's own.",
    )
    input: list[str] | None = Field(
        default=None,
        description="Template of a text-to-text input with columns in braces, such as 'sentence 1: "
        "{text}'; of several, a row takes the first whose columns it has. null takes the data's "
        "own input, or their texts.",
    )
    decoding: dict[str, Any] | None = Field(
        default=None,
        description="How text-to-text answers are decoded: beams, longest_answer (tokens), "
        "cut (the side of a long text that is cut).",
    )
    label_separator: str | None = Field(
        default=None,
        description="Text between the labels of a row in a multi-label task, such as ', '; null "
        "takes '|'.",
    )
    encoding: str | None = Field(
        default=None,
        description="Encoding of the task's text files, such as cp1252; null means UTF-8, or "
        "another one that is detected.",
    )

    @field_validator("input", mode="before")
    @classmethod
    def _take_one(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value


@settings_class
class TaskSettings(RowSettings):
    """Settings with which `load_task` reads a task.

    Examples:
        >>> TaskSettings(text="body", label="stars", shots=16).label
        'stars'
    """

    shots: int | None = Field(
        default=None,
        strict=True,
        description="Training rows a class, or all of a class with fewer, which a note says; None "
        "for all.",
    )
    data_seed: int = Field(default=0, strict=True, description="Seed of all sampling.")
    max_train: int | None = Field(
        default=None,
        strict=True,
        description="Largest number of training rows, drawn after the shots.",
    )
    max_dev: int | None = Field(
        default=None, strict=True, description="Largest number of dev rows."
    )
    max_test: int | None = Field(
        default=None, strict=True, description="Largest number of test rows."
    )
    max_length: int | None = Field(
        default=None, description="Tokens a row, in place of the preset's, or 128."
    )
    prompt: InstanceOf[Prompt] | None = Field(
        default=None,
        description="Masked prompt, in place of the preset's, or the label names themselves.",
    )
    causal_prompt: InstanceOf[Prompt] | None = Field(
        default=None, description="Causal prompt, likewise."
    )
    on_bad_row: Literal["error", "skip"] = Field(
        default="error",
        description="'skip' leaves rows out that cannot be used, and counts them in `source`; "
        "'error' refuses them.",
    )
