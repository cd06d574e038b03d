"""Data sets of the Hugging Face library: saved with `save_to_disk`, or on the hub by name."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cl_graft.data.labels import name_listed_classes
from cl_graft.data.record_files import SUFFIXES, Record, RecordFile, collect_records
from cl_graft.data.text_files import Reading, check_row_count, check_size
from cl_graft.errors import InputError, first_line
from cl_graft.kinds.kind import find_kind_columns

# The datasets library takes most of a second to import, so each function imports it when called.

_logger = logging.getLogger(__name__)

_SECONDS_TO_REACH_THE_HUB = 5.0


def is_saved_dataset(path: Path) -> bool:
    """Whether the folder was written by `Dataset.save_to_disk` or `DatasetDict.save_to_disk`."""
    return (path / "dataset_dict.json").is_file() or (
        (path / "dataset_info.json").is_file() and (path / "state.json").is_file()
    )


def read_saved_dataset(path: Path, *, reading: Reading) -> dict[str, RecordFile]:
    """Read the splits of a saved data set; a `Dataset` without splits comes as "train"."""
    import datasets

    try:
        loaded = datasets.load_from_disk(str(path))
    except IndexError:  # the library writes a split without rows, but cannot read it
        raise InputError(f"{path}: a split has no rows; save the data set without it") from None
    except Exception as error:  # the library raises whatever its files' parsers raise
        raise InputError(
            f"{path}: a saved data set that cannot be read ({first_line(error)})"
        ) from None
    return _read_splits(loaded, str(path), reading)


def read_hub_dataset(
    name: str, config: str | None = None, *, reading: Reading
) -> dict[str, RecordFile]:
    """Download a data set from the hub, or take it from the cache if HF_HUB_OFFLINE is set."""
    import datasets
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HfHubHTTPError

    # Without a connection load_dataset retries for 23 seconds; asking once first answers at once.
    if not constants.HF_HUB_OFFLINE:
        try:
            HfApi().dataset_info(name, timeout=_SECONDS_TO_REACH_THE_HUB)
        except HfHubHTTPError as error:
            raise InputError(
                f"the hub gives no data set {name!r} ({first_line(error)}); "
                f"it may be misspelt, or private. {_OWN_DATA}"
            ) from None
        except ValueError as error:
            raise InputError(f"{name!r} is no name of a hub data set ({error})") from None
        except Exception as error:  # the HTTP client's own errors, which differ between versions
            raise InputError(
                f"data set {name!r}: the Hugging Face hub cannot be reached ({error}). "
                f"{_OWN_DATA} If it is in the hub's local cache, set HF_HUB_OFFLINE=1."
            ) from None
    _logger.info("loading %s from the hub", name)
    try:
        loaded = datasets.load_dataset(name, config)
    except Exception as error:  # as above: no common base class
        raise InputError(f"hub data set {name!r} cannot be loaded ({first_line(error)})") from None
    place = name if config is None else f"{name}:{config}"
    return _read_splits(loaded, place, reading)


_OWN_DATA = (
    f"Local data is read from a file ({', '.join(SUFFIXES)}), a folder with train and test files, "
    "or a data set saved with save_to_disk."
)


def _read_splits(loaded: Any, place: str, reading: Reading) -> dict[str, RecordFile]:
    tables = loaded if isinstance(loaded, Mapping) else {"train": loaded}
    return {
        split: read_dataset(table, f"{place}[{split}]", reading) for split, table in tables.items()
    }


def read_dataset(table: Any, place: str, reading: Reading) -> RecordFile:
    """Read the columns of single values, and those of lists and records that a kind of tasks has.

    Class ids in a list, such as tags, are read as their names. Other columns of lists, and media,
    hold neither texts nor labels.
    """
    import datasets

    table = table.with_format(None)
    try:
        table.data.validate(full=True)  # values of damaged files may end the process
    except Exception as error:  # whatever reading a column raises
        raise InputError(f"{place}: the rows cannot be read ({first_line(error)})") from None
    check_size(place, table.data.nbytes, reading)
    check_row_count(place, len(table), reading)
    class_names = {
        column: tuple(feature.names)
        for column, feature in table.features.items()
        if isinstance(feature, datasets.ClassLabel)
    }
    held = find_kind_columns(table.features)
    read = [
        column
        for column, feature in table.features.items()
        if isinstance(feature, datasets.Value | datasets.ClassLabel)
        or (column in held and _is_plain(feature))
    ]
    tags = {
        column: tuple(table.features[column].feature.names)
        for column in read
        if isinstance(getattr(table.features[column], "feature", None), datasets.ClassLabel)
    }
    try:
        rows = enumerate(table.select_columns(read), start=1)
        records = collect_records(
            place,
            (Record(name_listed_classes(v, tags), f"{place}: row {n}") for n, v in rows),
            reading,
        )
    except InputError:
        raise
    except Exception as error:  # whatever reading or decoding a column raises
        raise InputError(f"{place}: the rows cannot be read ({first_line(error)})") from None
    passed_over = tuple(column for column in table.features if column not in read)
    return RecordFile(place, tuple(read), records, class_names, passed_over)


def _is_plain(feature: Any) -> bool:
    """Whether a feature is made of lists, records and single values alone."""
    import datasets

    if isinstance(feature, Mapping):
        return all(_is_plain(part) for part in feature.values())
    if isinstance(feature, list):
        return all(_is_plain(part) for part in feature)
    if isinstance(feature, datasets.Value | datasets.ClassLabel):
        return True
    return isinstance(feature, datasets.List | datasets.LargeList) and _is_plain(feature.feature)
