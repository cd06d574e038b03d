"""Loading a task by its name: presets, own files and folders, built-in generated tasks, the hub.

load_task("qnli", data=Path("data"), shots=512)      # the preset, from data/qnli
load_task("reviews.csv", label="stars")              # a file of one's own
load_task("generated:sentiment", shots=256)          # written by this package
load_task("stanfordnlp/imdb")                        # the hub's, with ':config' where needed
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cl_graft.data.audit import audit, describe_findings
from cl_graft.data.bad_rows import BadRows, OnBadRow
from cl_graft.data.columns import Columns, LabelledRows
from cl_graft.data.few_shot import few_shot, hold_out_test
from cl_graft.data.presets import PRESETS, Preset, explain_misfit
from cl_graft.data.prompts import CAUSAL_PROMPTS, PROMPTS, Prompt, default_prompts
from cl_graft.data.readers import has_rows, read_rows, why_missing
from cl_graft.data.record_files import SUFFIXES, strip_suffix, unread_kind
from cl_graft.data.streams import STREAMS
from cl_graft.data.text_files import Reading
from cl_graft.data.text_task import Row, TextTask, check_task_name
from cl_graft.errors import InputError, nearest

if TYPE_CHECKING:
    from cl_graft.data.synthetic import GeneratedTask

__all__ = ["DEFAULT_GENERATED_SHOTS", "GENERATED_TEST_ROWS", "find_task_name", "load_task"]

DEFAULT_GENERATED_SHOTS = 1024
GENERATED_TEST_ROWS = 1000
_GENERATED_PREFIX = "generated:"

_logger = logging.getLogger(__name__)


def load_task(
    name: Path | str,
    *,
    data: Path | str | None = None,
    shots: int | None = None,
    data_seed: int = 0,
    shots_short: str = "all",
    max_train: int | None = None,
    max_dev: int | None = None,
    max_test: int | None = None,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    label_names: Sequence[str] | None = None,
    metric: str | None = None,
    positive: str | None = None,
    max_length: int | None = None,
    prompt: Prompt | None = None,
    causal_prompt: Prompt | None = None,
    encoding: str | None = None,
    on_bad_row: OnBadRow = "error",
    max_megabytes: int | None = None,
    warn: bool = True,
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
        name: A preset, a path, "generated:<name>" (or the bare name), or a hub name
            "owner/name" with an optional ":config".
        data: Folder of data sets, or the data set itself.
        shots: Training rows a class; None for all (1,024 for a generated task).
        data_seed: Seed of all sampling.
        shots_short: "all" takes all rows of a class with too few, which a note says; "error"
            refuses.
        max_train: Largest number of training rows, drawn after the shots.
        max_dev: Largest number of dev rows.
        max_test: Largest number of test rows.
        text: Column of the first text.
        text_pair: Column of the second text.
        label: Column of the label.
        label_names: Label names in the order of class ids; empty for a regression.
        metric: Name of a metric, in place of the preset's, or accuracy (pearson for a regression).
        positive: The label of which the metric "f1" is the F1, in place of the one that a
            `meta.json` or the preset names, or of the second of two labels.
        max_length: Tokens a row, in place of the preset's, or 128.
        prompt: Masked prompt, in place of the preset's, or the label names themselves.
        causal_prompt: Causal prompt, likewise.
        encoding: Encoding of text files, in place of UTF-8.
        on_bad_row: "skip" leaves rows out that cannot be used, and counts them in `source`;
            "error" refuses them.
        max_megabytes: Largest size of a file once unpacked, in MB, in place of 500.
        warn: Log what a user should know of the data (rows left out or repeated, how dev was
            chosen). It stands in `source` in any case.

    Raises:
        InputError: If the name is unknown (with the nearest known), or anything about the data is
            not as it must be.

    Examples:
        >>> task = load_task("sentiment", shots=8, max_test=20)
        >>> task.label_names, len(task.train), len(task.test)
        (('negative', 'positive'), 16, 20)
    """
    name, data = str(name), None if data is None else Path(data)
    columns = Columns(text=text, text_pair=text_pair, label=label)
    place = _find(name, data)
    if place.generated:
        if columns != Columns() or label_names is not None or encoding is not None:
            raise InputError(
                f"{name!r} is generated: it has no columns, labels or encoding to name"
            )
        loaded = _load_generated(place.name, shots, data_seed)
        preset, bad_rows = None, BadRows()
    else:
        changed = {"encoding": encoding, "max_megabytes": max_megabytes}
        reading = Reading(**{key: value for key, value in changed.items() if value is not None})
        read = _read(place, columns, label_names, reading, on_bad_row)
        loaded = _chosen(place, read, shots, data_seed, shots_short)
        preset, bad_rows = read.preset, read.bad_rows

    names = loaded.label_names
    pair = loaded.train[0].text_pair is not None
    fallback: tuple[Prompt | None, Prompt | None] = (None, None)
    if preset is not None or (place.generated and place.name in PROMPTS):
        fallback = PROMPTS.get(place.name), CAUSAL_PROMPTS.get(place.name)
    elif names:
        fallback = default_prompts(names, pair=pair)
    plain = "accuracy" if names else "pearson"
    metric = metric or (preset.metric if preset else plain)
    if positive is None and metric == "f1" and len(names) == 2:
        positive = loaded.positive or (preset and preset.positive) or names[1]
    positive = preset.aliases.get(positive or "", positive) if preset else positive
    shown = {} if positive is None else {"f1_of": positive}
    task = TextTask(
        name=place.name,
        label_names=names,
        train=loaded.train,
        dev=loaded.dev,
        test=loaded.test,
        metric=metric,
        positive=positive,
        prompt=prompt or fallback[0],
        causal_prompt=causal_prompt or fallback[1],
        max_length=max_length or (preset.max_length if preset else 128),
        source={**loaded.source, **shown},
    ).with_limits(seed=data_seed, max_train=max_train, max_dev=max_dev, max_test=max_test)
    counts = audit(task)
    notes = [*loaded.notes, *describe_findings(task, counts)]
    if warn:
        bad_rows.warn()
        for note in notes:
            _logger.warning("task %s: %s", task.name, note)
    return replace(task, source={**task.source, **counts, "notes": [*bad_rows.sentences(), *notes]})


def find_task_name(name: Path | str, *, data: Path | str | None = None) -> str:
    """Return how the task will be called that `load_task` loads by a name, without reading rows.

    Raises:
        InputError: If the name is unknown.
    """
    return _find(str(name), None if data is None else Path(data)).name


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a task's rows are: one of path, hub or generated; and the task's name."""

    name: str
    path: Path | None = None
    hub: str | None = None
    generated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    label_names: tuple[str, ...]
    train: tuple[Row, ...]
    dev: tuple[Row, ...]
    test: tuple[Row, ...]
    source: dict[str, Any]
    notes: tuple[str, ...] = ()
    positive: str | None = None


def _find(name: str, data: Path | None) -> _Place:
    if name.startswith(_GENERATED_PREFIX):
        own = name.removeprefix(_GENERATED_PREFIX)
        if _generated(own) is None:
            raise InputError(f"no generated task {own!r}; {nearest(own, _generated_names())}")
        return _Place(name=own, generated=True)
    if not name.strip():
        raise InputError("the task's name is empty")
    if data is not None:
        found = _find_in(data, name)
        if found is not None:
            return found
    path = Path(name).expanduser()
    known = {*PRESETS, *_generated_names()}
    # A folder that only happens to be called as a known task (a run's output) is not its data.
    meant = data is None and (name not in known or has_rows(path))
    if path.exists() and (meant or _looks_like_path(name)):
        return _Place(name=check_task_name(_stem(path)), path=path)
    if _generated(name) is not None:
        return _Place(name=name, generated=True)
    hub_name = "/" in name and not _looks_like_path(name)
    if data is not None and not hub_name:
        raise InputError(
            f"{data}: there is no data for task {name!r}; {nearest(name, _offered(data))}"
        )
    if name in PRESETS:
        return _Place(name=name, hub=_hub_of(PRESETS[name]))
    if _looks_like_path(name):
        raise InputError(f"{name}: {why_missing(path)}")
    if hub_name:
        return _Place(name=check_task_name(name.split("/", 1)[1].replace(":", "_")), hub=name)
    hint = nearest(name, {*known, *STREAMS})  # looks streams up, which may fail
    raise InputError("; ".join([f"unknown task {name!r}", hint, *STREAMS.failures]))


def _find_in(data: Path, name: str) -> _Place | None:
    if not data.exists():
        raise InputError(f"{data}: {why_missing(data)}")
    candidates = [data / candidate for candidate in (name, *(name + end for end in SUFFIXES))]
    for path in candidates:
        if has_rows(path):
            return _Place(name=check_task_name(_stem(path)), path=path)
    if has_rows(data):
        return _Place(name=check_task_name(name), path=data)
    if _generated(name) is None:
        # What is there under the name but cannot be read says itself what is wrong with it.
        for path in candidates:
            if path.is_symlink() or path.exists():
                return _Place(name=check_task_name(name), path=path)
        _refuse_other_kinds(data, name)
    return None


def _refuse_other_kinds(data: Path, name: str) -> None:
    if data.is_file():
        raise InputError(unread_kind(data))
    other = sorted(p.name for p in data.iterdir() if p.stem == name) if data.is_dir() else []
    if other:
        raise InputError(unread_kind(data / other[0]))


def _offered(data: Path) -> set[str]:
    folders = data.iterdir() if data.is_dir() else ()
    return {_stem(path) for path in folders if has_rows(path)} | set(_generated_names())


def _looks_like_path(name: str) -> bool:
    return (
        name.startswith((".", "/", "~"))
        or name.count("/") > 1
        or strip_suffix(Path(name).name) is not None
    )


def _stem(path: Path) -> str:
    path = path.resolve()
    return path.name if path.is_dir() else strip_suffix(path.name) or path.name


def _hub_of(preset: Preset) -> str:
    if preset.hub is None:
        raise InputError(
            f"the data set {preset.name!r} is not on the hub in a form that is read here: name "
            f"with `data` the folder that holds {preset.name}/train.jsonl and "
            f"{preset.name}/test.jsonl"
        )
    return preset.hub


@dataclass(frozen=True, slots=True)
class _Read:
    rows: LabelledRows
    preset: Preset | None
    origin: str
    bad_rows: BadRows
    notes: tuple[str, ...] = ()


def _read(
    place: _Place,
    columns: Columns,
    label_names: Sequence[str] | None,
    reading: Reading,
    on_bad_row: OnBadRow,
) -> _Read:
    """Read a place as its preset's data, or, where they are not, as data of one's own."""
    settings: dict[str, Any] = {"columns": columns, "label_names": label_names, "reading": reading}
    preset = PRESETS.get(place.name)
    if preset is None or (label_names is not None and set(label_names) != set(preset.label_names)):
        return _read_as(None, place, on_bad_row, settings)
    read = _read_as(preset, place, on_bad_row, settings)
    why = explain_misfit(preset, read.rows)
    if not why:
        return read
    if place.path is None:
        raise InputError(f"{read.origin} is not the known data set {place.name!r}: {why}")
    note = f"these data are not the known data set {place.name!r}: {why}"
    return replace(_read_as(None, place, on_bad_row, settings), notes=(note,))


def _read_as(
    preset: Preset | None, place: _Place, on_bad_row: OnBadRow, settings: Mapping[str, Any]
) -> _Read:
    bad_rows = BadRows(on_bad_row)
    known: dict[str, Any] = {**settings, "bad_rows": bad_rows}
    if preset is not None:
        known |= {
            "preset_columns": preset.columns,
            "preset_names": preset.label_names,
            "aliases": preset.aliases,
        }
    origin = f"hub:{place.hub}" if place.path is None else str(place.path)
    return _Read(read_rows(place.path or place.hub or "", **known), preset, origin, bad_rows)


def _chosen(
    place: _Place, read: _Read, shots: int | None, data_seed: int, shots_short: str
) -> _Loaded:
    rows = read.rows
    train, dev, test, rule = _three_splits(rows, data_seed)
    try:
        chosen = few_shot(
            train,
            label_names=rows.label_names,
            shots=shots,
            data_seed=data_seed,
            dev=dev,
            short=shots_short,
        )
    except InputError as error:
        raise InputError(f"task {place.name!r}: {error}") from None
    notes = [*read.notes, str(chosen.rule.get("note", ""))]
    source: dict[str, Any] = {
        "from": read.origin,
        "columns": [rows.columns.text, rows.columns.text_pair, rows.columns.label],
        "rows_read": {split: len(own) for split, own in rows.splits.items()},
        "left_out": read.bad_rows.report(),
        "without_labels": list(rows.without_labels),
        "test_split": rule,
        "split": chosen.rule,
    }
    return _Loaded(
        label_names=rows.label_names,
        train=chosen.train,
        dev=chosen.dev,
        test=test,
        source=source,
        notes=tuple(note for note in notes if note),
        positive=rows.positive,
    )


def _three_splits(
    read: LabelledRows, data_seed: int
) -> tuple[tuple[Row, ...], tuple[Row, ...] | None, tuple[Row, ...], str]:
    splits: Mapping[str, tuple[Row, ...]] = read.splits
    train, dev = splits["train"], splits.get("dev")
    if "test" in splits:
        return train, dev, splits["test"], "the data's own test split"
    if dev is not None:
        return train, None, dev, "the data's dev split serves as test split"
    train, test = hold_out_test(train, data_seed=data_seed)
    return train, None, test, f"80/20 of all rows, by data seed {data_seed}"


def _generated(name: str) -> GeneratedTask | None:
    # The grammars build their word tables on import; who brings data of their own needs none.
    from cl_graft.data.synthetic import find_generated

    return find_generated(name)


def _generated_names() -> Iterable[str]:
    from cl_graft.data.synthetic import GENERATED

    return GENERATED


def _load_generated(name: str, shots: int | None, data_seed: int) -> _Loaded:
    from cl_graft.data.synthetic import generate
    from cl_graft.data.synthetic import label_names as label_names_of

    label_names = label_names_of(name)
    shots = DEFAULT_GENERATED_SHOTS if shots is None else shots
    if shots < 1:
        raise InputError(f"shots must be at least 1 row a class, got {shots}")
    train_rows = shots * len(label_names)
    dev_rows = min(max(train_rows, 32), GENERATED_TEST_ROWS)
    try:
        # The test rows are the same for every data seed, so that seeds can be compared.
        train = generate(name, split="train", rows=train_rows, seed=data_seed)
        dev = generate(name, split="dev", rows=dev_rows, seed=data_seed)
        test = generate(name, split="test", rows=GENERATED_TEST_ROWS, seed=0)
    except ValueError as error:
        raise InputError(str(error)) from None
    split = {
        "train": f"{shots} rows a class",
        "dev": f"{dev_rows} rows of their own",
        "shots": shots,
        "data_seed": data_seed,
    }
    source = {"from": f"{_GENERATED_PREFIX}{name}", "split": split}
    return _Loaded(label_names=label_names, train=train, dev=dev, test=test, source=source)
