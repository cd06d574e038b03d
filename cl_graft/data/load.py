"""From the name of a task and its settings to a `TextTask`: rows, splits, sample, kind, prompts.

The name is a preset, a file or folder, a built-in task, or a data set of the hub:

load_task("qnli", data=Path("data"), shots=512)      # the preset, from data/qnli
load_task("reviews.csv", label="stars")              # a file of one's own
load_task("built-in:scope", shots=64)                # in this package
load_task("stanfordnlp/imdb")                        # the hub's, with ':config' where needed
load_task("reviews", data={"train": df, "test": rows})   # tables that a program holds
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from cl_graft.data.audit import audit, describe_findings
from cl_graft.data.bad_rows import BadRows
from cl_graft.data.columns import LabelledRows
from cl_graft.data.dataset_presets import PRESETS, Preset
from cl_graft.data.few_shot import HELD_OUT, few_shot, hold_out_test, name_missing, name_single
from cl_graft.data.kind_rows import find_fields
from cl_graft.data.readers import DataFiles, Tables, make_rows, read_files
from cl_graft.data.task_place import BUILT_IN_PREFIX, TaskPlace, find_place
from cl_graft.data.task_settings import TaskSettings
from cl_graft.data.text_files import Reading
from cl_graft.errors import InputError, a_or_an
from cl_graft.kinds.kind import KINDS, Kind
from cl_graft.kinds.multi_label import MultiLabel
from cl_graft.kinds.prompts import CAUSAL_PROMPTS, PROMPTS, Prompt, default_prompts
from cl_graft.kinds.rows import Row
from cl_graft.kinds.text2text import Decoding, Text2Text
from cl_graft.kinds.text_task import MAX_LENGTH, TextTask, check_task_name, name_task

_OF_TABLES = "data"
"""Name of a task whose rows come without one."""

_logger = logging.getLogger(__name__)


def load_task(
    name: Path | str | object,
    settings: TaskSettings | None = None,
    *,
    data: Path | str | object | None = None,
    warn: bool = True,
    **keywords: Any,
) -> TextTask:
    """Load a task by name.

    With `data` the name is looked for there first, as a folder or file; a folder (or file) that
    holds rows itself is taken as the task of that name. A name that is a preset brings its columns,
    metric, prompts and length, if the data fit it: with its labels, and as many texts a row. Other
    data of that name are read as data of one's own, and a note says so. A preset without `data`
    comes from the hub.

    Without a test split, the data's dev split is the test split (the labels of GLUE's test splits
    are hidden); without either, 20 % of the rows are held out by `data_seed`.

    Args:
        name: A preset, a path, "built-in:<name>" (or the bare name), or a hub name
            "owner/name" with an optional ":config". Or rows, as `data` takes them; the task is then
            called "data".
        settings: Columns, labels and number of the rows, and what else differs from the defaults.
        data: Folder of data sets, or the data set itself. Or rows that the program holds: a
            DataFrame of pandas, a Dataset or DatasetDict of the datasets library, a list of
            dictionaries by column, or a dictionary of these by split.
        warn: Log what a user should know of the data (rows left out or repeated, how dev was
            chosen). It stands in `source` in any case.
        **keywords: Fields of `TaskSettings`, in place of those of `settings`.

    Raises:
        InputError: If the name or a keyword is unknown (with the nearest known), or anything about
            the data is not as it must be.

    Examples:
        >>> task = load_task("scope", shots=8, max_test=20)
        >>> task.label_names, len(task.train), len(task.test)
        (('in_scope', 'out_of_scope'), 16, 20)
    """
    settings = replace(settings, **keywords) if settings else TaskSettings(**keywords)
    task_place = _find_place(name, data)
    _check(task_place.name, settings)
    reading = Reading(encoding=settings.encoding, where=settings.where or {})
    files = read_files(task_place.source, reading, BadRows(settings.on_bad_row))
    task = make_task(task_place, files, settings)
    if warn:
        for note in task.source["notes"]:  # pyright: ignore[reportGeneralTypeIssues]
            _logger.warning("task %s: %s", task.name, note)
    return task


def make_task(task_place: TaskPlace, files: DataFiles, settings: TaskSettings) -> TextTask:
    """Make a task of what was read at its place."""
    rows, preset, notes, source = _read(task_place, files, settings)
    names = rows.label_names
    kind = KINDS.find(rows.kind or ("classification" if names else "regression"))
    classes = names if kind.needs_classes else ()
    try:
        train, dev, test, test_rule = _three_splits(rows.splits, settings.data_seed, classes)
        chosen = few_shot(
            train, label_names=classes, shots=settings.shots, data_seed=settings.data_seed, dev=dev
        )
    except InputError as error:
        hint = "" if {"test", "dev"} & rows.splits.keys() else HELD_OUT
        raise InputError(f"task {task_place.name!r}: {error}{hint}") from None
    notes += [
        str(chosen.rule.get("note", "")),
        name_missing("test", test, classes),
        name_single(chosen.train, classes),
    ]
    prompt, causal_prompt = _choose_prompts(task_place, rows, preset, kind)
    fields = dict(rows.fields)
    if settings.template is not None or settings.decoding is not None:
        fields |= _read_answer_settings(task_place.name, kind, settings)
        causal_prompt = fields.pop("causal_prompt", causal_prompt)
    metric = settings.metric or (preset.metric if preset else kind.metrics[0])
    positive = settings.positive
    if positive is None and metric == "f1" and len(names) == 2:
        positive = rows.positive or (preset and preset.positive) or names[1]
    positive = preset.aliases.get(positive or "", positive) if preset else positive
    source |= {"test_split": test_rule, "split": chosen.rule}
    source |= {} if positive is None else {"f1_of": positive}
    source |= {"where": settings.where} if settings.where else {}
    task = TextTask(
        name=task_place.name,
        label_names=names,
        train=chosen.train,
        dev=chosen.dev,
        test=test,
        metric=metric,
        positive=positive,
        prompt=settings.prompt or prompt,
        causal_prompt=settings.causal_prompt or causal_prompt,
        max_length=settings.max_length or (preset.max_length if preset else MAX_LENGTH),
        source=source,
        kind=kind.name,
        **fields,
    ).with_limits(
        seed=settings.data_seed,
        max_train=settings.max_train,
        max_dev=settings.max_dev,
        max_test=settings.max_test,
    )
    counts = audit(task)
    notes = [*filter(None, notes), *describe_findings(task, counts)]
    return replace(task, source={**task.source, **counts, "notes": notes})


def _find_place(name: object, data: object) -> TaskPlace:
    if isinstance(name, str | Path) and (data is None or isinstance(data, str | Path)):
        return find_place(str(name), None if data is None else Path(data))
    if not isinstance(name, str | Path):
        if data is not None:
            raise InputError(f"expected the name of a task beside data, got {type(name).__name__}")
        return TaskPlace(name=_OF_TABLES, tables=Tables(_OF_TABLES, name))
    return TaskPlace(name=check_task_name(str(name)), tables=Tables(str(name), data))


def _choose_prompts(
    task_place: TaskPlace, rows: LabelledRows, preset: Preset | None, kind: Kind
) -> tuple[Prompt | None, Prompt | None]:
    first = rows.splits["train"]
    known: tuple[Prompt | None, Prompt | None] = (None, None)
    if preset or (task_place.built_in and not rows.kind and task_place.name in PROMPTS):
        known = PROMPTS.get(task_place.name), CAUSAL_PROMPTS.get(task_place.name)
    elif rows.label_names and not rows.kind:
        known = default_prompts(rows.label_names, pair=first[0].text_pair is not None)
    return kind.default_prompts(first) if known == (None, None) else known


def _check(name: str, settings: TaskSettings) -> None:
    """Refuse settings of another kind of tasks than the one that is named."""
    kind, separator = settings.kind, settings.label_separator
    made_of_texts = settings.instruction is not None or settings.input is not None
    if made_of_texts and kind not in (None, Text2Text.name):
        raise InputError(
            f"task {name!r}: instruction and input are for text to text, and kind is {kind!r}"
        )
    with name_task(name):
        for text in settings.input or ():
            find_fields(text)
    if separator is not None and (kind != MultiLabel.name or not separator):
        raise InputError(
            f"task {name!r}: label_separator parts the labels of a task of kind "
            f"{MultiLabel.name!r}, and must not be empty; got {separator!r}, and kind {kind!r}"
        )


def _read_answer_settings(name: str, kind: Kind, settings: TaskSettings) -> dict[str, Any]:
    if kind.name != Text2Text.name:
        raise InputError(
            f"task {name!r}: template and decoding are for text to text, and this is a task of "
            f"kind {kind.name!r}"
        )
    fields: dict[str, Any] = {}
    with name_task(name):
        if settings.template is not None:
            fields["causal_prompt"] = Prompt(settings.template, {})
        if settings.decoding is not None:
            fields["decoding"] = Decoding(**settings.decoding)
    return fields


def _read(
    task_place: TaskPlace, files: DataFiles, settings: TaskSettings
) -> tuple[LabelledRows, Preset | None, list[str], dict[str, Any]]:
    """Read a place as its preset's data, or, where they are not, as data of one's own.

    Returns the rows, the preset that they are of, notes, and where they come from.
    """

    def read_as(preset: Preset | None) -> tuple[LabelledRows, BadRows]:
        copied = replace(files, bad_rows=deepcopy(files.bad_rows))
        return make_rows(copied, settings, preset=preset), copied.bad_rows

    preset, kind = PRESETS.get(task_place.name), settings.kind
    names = () if kind == "regression" and not settings.label_names else settings.label_names
    if kind is not None and not KINDS.find(kind).one_label:
        preset = None
    if names is not None and preset and set(names) != set(preset.label_names):
        preset = None
    rows, bad_rows = read_as(preset)
    origin, why = _origin(task_place), ""
    if preset is not None:
        pair = rows.columns.text_pair is not None
        why = preset.explain_misfit(rows.label_names, pair=pair)
        if rows.kind and not KINDS[rows.kind].one_label:
            why = f"these data are of {a_or_an(rows.kind.replace('_', ' '))} task"
        if why and task_place.hub is not None:
            raise InputError(f"{origin} is not the known data set {task_place.name!r}: {why}")
    if why:
        preset = None
        why = f"these data are not the known data set {task_place.name!r}: {why}"
        rows, bad_rows = read_as(None)
    source: dict[str, Any] = {
        "from": origin,
        "columns": [rows.columns.text, rows.columns.text_pair, rows.columns.label],
        "inputs": list(rows.columns.inputs),
        "rows_read": {split: len(copied) for split, copied in rows.splits.items()},
        "without_labels": list(rows.without_labels),
        "left_out": bad_rows.report(),
    }
    return rows, preset, [*bad_rows.sentences(), why], source


def _origin(task_place: TaskPlace) -> str:
    if task_place.tables is not None:
        return "memory"
    if task_place.built_in:
        return f"{BUILT_IN_PREFIX}{task_place.path and task_place.path.name}"
    return f"hub:{task_place.hub}" if task_place.path is None else str(task_place.path)


def _three_splits(
    splits: Mapping[str, tuple[Row, ...]], data_seed: int, classes: Sequence[str]
) -> tuple[tuple[Row, ...], tuple[Row, ...] | None, tuple[Row, ...], str]:
    train, dev = splits["train"], splits.get("dev")
    if "test" in splits:
        return train, dev, splits["test"], "the data's own test split"
    if dev is not None:
        return train, None, dev, "the data's dev split serves as test split"
    train, test = hold_out_test(train, data_seed=data_seed, label_names=classes)
    what = "each class's rows" if classes else "all rows"
    return train, None, test, f"80/20 of {what}, by data seed {data_seed}"
