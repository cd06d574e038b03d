"""Rows of parquet files, and of data sets of the datasets library, read batch by batch.

Read are columns of single values, and of lists and records whose names a kind of tasks has; class
ids in a list, such as tags, are read as their names.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cl_graft.data.labels import name_listed_classes
from cl_graft.data.text_files import Reading
from cl_graft.errors import InputError, first_line
from cl_graft.kinds.kind import find_kind_columns

# pyarrow and datasets take most of a second to import, so each function imports them when called.

_logger = logging.getLogger(__name__)

_BATCH_ROWS = 1_000
_SECONDS_TO_REACH_THE_HUB = 5.0
_OWN_DATA = (
    "Local data is read from a file (.jsonl, .json, .csv, .tsv, .parquet), a folder with train and "
    "test files, or a data set saved with save_to_disk."
)


@dataclass(frozen=True, slots=True)
class ArrowTable:
    """A table that is open: its rows are read in batches, of the `columns` that are read."""

    columns: tuple[str, ...]
    rows: Iterator[dict[str, Any]]
    class_names: Mapping[str, tuple[str, ...]]
    passed_over: tuple[str, ...]


def read_parquet(path: Path, reading: Reading) -> ArrowTable:
    """Open a parquet file; damage is an error here, or while rows are read."""
    import pyarrow
    import pyarrow.parquet

    fault = "not an intact parquet file"
    try:
        file = pyarrow.parquet.ParquetFile(path)
        schema = file.schema_arrow
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path}: {fault} ({first_line(error)})") from None

    # Texts are not kept as dictionaries: each batch would copy that of all batches before it.
    def read(columns: list[str]) -> Iterable[Any]:
        return file.iter_batches(_BATCH_ROWS, columns=columns)

    return _open(schema, read, str(path), fault, reading)


def read_dataset(table: Any, place: str, reading: Reading) -> ArrowTable:
    """Open a `Dataset` of the datasets library."""
    fault = "the rows cannot be read"
    table = table.with_format("arrow")
    try:
        table.data.validate(full=True)  # values of damaged files may end the process
    except Exception as error:  # whatever reading a column raises
        raise InputError(f"{place}: {fault} ({first_line(error)})") from None
    return _open(
        table.features.arrow_schema,
        lambda columns: table.select_columns(columns).iter(_BATCH_ROWS),
        place,
        fault,
        reading,
    )


def _open(
    schema: Any,
    read: Callable[[list[str]], Iterable[Any]],
    place: str,
    fault: str,
    reading: Reading,
) -> ArrowTable:
    """Open a table of a schema; `read` gives batches of some of its columns."""
    if doubled := sorted(name for name, count in Counter(schema.names).items() if count > 1):
        raise InputError(f"{place}: there are several columns called {doubled[0]!r}")
    held = find_kind_columns(schema.names, labelled=reading.labelled)
    columns = [field.name for field in schema if _is_read(field.type, field.name in held)]
    class_names, tags = _read_class_names((schema.metadata or {}).get(b"huggingface", b"{}"))
    rows = _read_rows(read(columns), columns, place, fault)
    if tags:
        rows = (name_listed_classes(row, tags) for row in rows)
    passed_over = tuple(name for name in schema.names if name not in columns)
    return ArrowTable(tuple(columns), rows, class_names, passed_over)


def _read_class_names(metadata: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        features = json.loads(metadata).get("info", {}).get("features", {})
        items = {name: own.get("feature") for name, own in features.items() if type(own) is dict}
        single, listed = (
            {
                column: tuple(own["names"])
                for column, own in found.items()
                if isinstance(own, dict) and own.get("_type") == "ClassLabel"
            }
            for found in (features, items)
        )
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        # Foreign metadata under the same key is no reason to refuse the table.
        return {}, {}
    return single, listed


def _is_read(kind: Any, is_held: bool) -> bool:
    """Whether a column of a type is read: single values, or what a kind of tasks has."""
    import pyarrow.types as types

    if types.is_list(kind) or types.is_large_list(kind):
        return is_held and _is_read(kind.value_type, is_held)
    if types.is_struct(kind):
        parts = (kind.field(place).type for place in range(kind.num_fields))
        return is_held and all(_is_read(part, is_held) for part in parts)
    single = (
        *(types.is_string, types.is_large_string, types.is_binary, types.is_large_binary),
        *(types.is_dictionary, types.is_primitive, types.is_decimal, types.is_null),
    )
    return not types.is_temporal(kind) and any(is_one(kind) for is_one in single)


def _read_rows(
    batches: Iterable[Any], columns: list[str], place: str, fault: str
) -> Iterator[dict[str, Any]]:
    left = iter(batches)
    while True:
        try:
            if (batch := next(left, None)) is None:
                return
            # A name with dots may be that of a field of another column, too.
            values = [_list_values(name, batch.column(name)) for name in columns]
        except Exception as error:  # whatever reading or decoding a column raises
            raise InputError(f"{place}: {fault} ({first_line(error)})") from None
        for row in zip(*values, strict=True):
            yield dict(zip(columns, row, strict=True))


def _list_values(name: str, column: Any) -> list[Any]:
    try:
        return column.to_pylist()
    except UnicodeDecodeError as error:
        raise ValueError(f"column {name!r} holds a text that is not UTF-8: {error}") from None


def is_saved_dataset(path: Path) -> bool:
    """Whether the folder was written by `Dataset.save_to_disk` or `DatasetDict.save_to_disk`."""
    return (path / "dataset_dict.json").is_file() or (
        (path / "dataset_info.json").is_file() and (path / "state.json").is_file()
    )


def load_saved_dataset(path: Path) -> Mapping[str, Any]:
    """Load the splits of a saved data set; a `Dataset` without splits comes as "train"."""
    import datasets

    try:
        loaded: Any = datasets.load_from_disk(str(path))
    except IndexError:  # the library writes a split without rows, but cannot read it
        raise InputError(f"{path}: a split has no rows; save the data set without it") from None
    except Exception as error:  # the library raises whatever its files' parsers raise
        raise InputError(
            f"{path}: a saved data set that cannot be read ({first_line(error)})"
        ) from None
    return loaded if isinstance(loaded, Mapping) else {"train": loaded}


def load_hub_dataset(name: str) -> Mapping[str, Any]:
    """Load a data set of the hub, ``"owner/name"`` or ``"owner/name:config"``, by split.

    It is taken from the local cache if HF_HUB_OFFLINE is set; a hub that cannot be reached is an
    error within seconds.
    """
    import datasets
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HfHubHTTPError

    owner_name, _, config = name.partition(":")
    # Without a connection load_dataset retries for 23 seconds; asking once first answers at once.
    if not constants.HF_HUB_OFFLINE:
        try:
            HfApi().dataset_info(owner_name, timeout=_SECONDS_TO_REACH_THE_HUB)
        except HfHubHTTPError as error:
            raise InputError(
                f"the hub gives no data set {owner_name!r} ({first_line(error)}); "
                f"it may be misspelt, or private. {_OWN_DATA}"
            ) from None
        except ValueError as error:
            raise InputError(f"{owner_name!r} is no name of a hub data set ({error})") from None
        except Exception as error:  # the HTTP client's own errors, which differ between versions
            raise InputError(
                f"data set {owner_name!r}: the Hugging Face hub cannot be reached ({error}). "
                f"{_OWN_DATA} If it is in the hub's local cache, set HF_HUB_OFFLINE=1."
            ) from None
    _logger.info("loading %s from the hub", owner_name)
    try:
        loaded: Any = datasets.load_dataset(owner_name, config or None)
    except Exception as error:  # as above: no common base class
        raise InputError(
            f"hub data set {owner_name!r} cannot be loaded ({first_line(error)})"
        ) from None
    return loaded if isinstance(loaded, Mapping) else {"train": loaded}
