"""The schema of metadata: the JSON that a file may hold on a base, an entry and a recorded batch.

A checksum shows that a file is whole, not that its content is harmless, so metadata are checked
when they are read and before they are written. Unknown keys may hold any JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from cl_graft.runtime.escaping import control_in

LONGEST_NAME = 200
"""Characters of the name of a task, a label, a metric or a localizer."""

LARGEST_LENGTH = 2**17
"""Most tokens a row."""

_LONGEST_PATH = 4096
_LONGEST_TEXT = 100_000


def _refuse_control(text: str) -> str:
    if character := control_in(text):
        raise ValueError(f"a name holds no control characters such as {character}")
    return text


def _refuse_control_in_text(text: str) -> str:
    _refuse_control(text.replace("\n", " ").replace("\t", " "))
    return text


def _refuse_doubles(names: list[str]) -> list[str]:
    if len(set(names)) != len(names):
        raise ValueError("names must differ from each other")
    return names


def _refuse_path(name: str) -> str:
    if "/" in name or "\\" in name or name in (".", ".."):
        raise ValueError("a file's name holds no path")
    return name


_Line = AfterValidator(_refuse_control)
_Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME), _Line]
_File = Annotated[_Name, AfterValidator(_refuse_path)]
_Path = Annotated[str, Field(max_length=_LONGEST_PATH), _Line]
_Text = Annotated[str, Field(min_length=1, max_length=_LONGEST_TEXT)]
_Word = Annotated[_Text, _Line]
_Template = Annotated[_Text, AfterValidator(_refuse_control_in_text)]
_Names = Annotated[list[_Name], Field(max_length=10_000), AfterValidator(_refuse_doubles)]
_Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Count = Annotated[int, Field(ge=0, le=2**62)]
_Length = Annotated[int, Field(ge=1, le=LARGEST_LENGTH)]
_Share = Annotated[float, Field(ge=0, le=1)]
_Dtype = Literal["float32", "bfloat16", "float16", "float64"]
_Family = Literal["encoder", "masked_lm", "causal_lm", "seq2seq_lm"]
_Settings = dict[_Name, Any]
_Score = float | None  # a score on dev rows; NaN where a measure has no value


class _Schema(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")


class _Prompt(_Schema):
    template: _Template
    words: Annotated[dict[_Name, _Word], Field(max_length=10_000)]


class _Decoding(_Schema):
    beams: Annotated[int, Field(ge=1, le=64)] = 1
    longest_answer: _Length | None = None
    cut: Literal["left", "right"] = "right"


class _Columns(_Schema):
    text: _Template | None = None
    text_pair: _Template | None = None
    inputs: Annotated[list[_Template], Field(max_length=100)] = []


class _Chat(_Schema):
    system: _Template | None = None


class _Temperature(_Schema):
    value: Annotated[float, Field(gt=0, le=1000)]
    rows: _Count
    ece_before: _Share
    ece_after: _Share


class _BaseMetadata(_Schema):
    """Metadata from which a base model is rebuilt."""

    family: _Family | None = None
    pooling: Literal["mean", "first"] = "mean"
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    trust_remote_code: bool = False
    max_length: _Length | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] = 0
    weights_sha256: _Sha256 | None = None
    heads: Annotated[list[_Path], Field(max_length=10_000)] | None = None
    tokenizer_sha256: _Sha256 | None = None
    files: Annotated[dict[_File, _Sha256], Field(max_length=10_000)] | None = None
    config: (
        Annotated[dict[_Name, bool | int | float | _Template], Field(max_length=10_000)] | None
    ) = None
    revision: _Name | None = None
    settings: _Settings | None = None


class _Base(_Schema):
    """A base model's identity."""

    fingerprint: _Name
    model: _Path
    dtype: _Dtype
    metadata: _BaseMetadata


class _TaskMetadata(_Schema):
    """Metadata with which a task's texts are answered, and its measurements."""

    label_names: _Names | None = None
    kind: _Name | None = None
    intent_names: _Names | None = None
    pair: bool | None = None
    prompt: _Prompt | None = None
    decoding: _Decoding | None = None
    chat: _Chat | None = None
    columns: _Columns | None = None
    max_length: _Length | None = None
    longest_answer: _Length | None = None
    metric: _Name | None = None
    localizer: _Name | None = None
    activation: Literal["tanh", "relu", "gelu"] | None = None
    dense_dev: _Score = None
    graft_dev: _Score = None
    trained_dev: _Score = None
    temperature: _Temperature | None = None
    data_fingerprint: _Name | None = None
    settings_sha256: _Sha256 | None = None
    settings: _Settings | None = None


class _Task(_Schema):
    task: _Name
    label: Annotated[int, Field(ge=0, lt=2**62)] = 0
    weights_sha256: _Sha256 | Literal[""] = ""
    metadata: _TaskMetadata


class _Environment(_Schema):
    """Environment in which a batch was recorded."""

    __pydantic_extra__: dict[str, _Name]  # pyright: ignore[reportIncompatibleVariableOverride]
    threads: Annotated[str, Field(pattern=r"^[0-9]{1,9}$")] = "1"


class _ExportedBase(_Schema):
    model: Annotated[str, Field(min_length=1, max_length=_LONGEST_PATH), _Line]
    dtype: _Dtype
    fingerprint: _Name
    revision: _Name | None = None
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"


class _Exported(_TaskMetadata):
    """Content of a `task.json` beside an export."""

    family: _Family | None = None
    pooling: Literal["mean", "first"] | None = None
    base: _ExportedBase | None = None


def check_name(name: str, *, what: str) -> str:
    """Return a name that a file may hold; refuse an empty or long one, and control characters."""
    if not 0 < len(name) <= LONGEST_NAME:
        raise ValueError(f"{what} must have 1 to {LONGEST_NAME} characters, got {len(name):,}")
    if character := control_in(name):
        raise ValueError(f"{what} must hold no control characters, got {character} in {name!r}")
    return name


_SCHEMAS = {"base": _Base, "task": _Task, "environment": _Environment, "export": _Exported}


def check_metadata(kind: str, record: Mapping[str, object]) -> None:
    """Check what describes a base, a task, an environment or an export; `ValueError` says how.

    Of a task these are its name and `metadata`, and maybe `label` and `weights_sha256`.
    """
    _check(_SCHEMAS[kind], record)


def _check(schema: type[BaseModel], record: Mapping[str, object]) -> None:
    try:
        text = json.dumps(record, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"metadata must be JSON in Unicode: {error}") from None
    try:
        schema.model_validate_json(text)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        path = ".".join(_show_key(str(part)) for part in fault["loc"])
        message = str(fault["msg"]).removeprefix("Value error, ")
        raise ValueError(f"{path}: {message}, got {_shorten(fault['input'])}") from None


def _show_key(key: str) -> str:
    """Return a key as a message can hold it: keys come from the file, too."""
    return key if key.isprintable() and len(key) <= 80 else ascii(key[:80])


def _shorten(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    text = repr(value) if isinstance(value, str | int | float | bool) else type(value).__name__
    return text if len(text) <= 80 else f"{text[:77]}…"
