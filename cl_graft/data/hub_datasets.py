"""Data sets of the datasets library: saved with `save_to_disk`, or of the Hugging Face hub."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cl_graft.errors import InputError, first_line

_logger = logging.getLogger(__name__)

_SECONDS_TO_REACH_THE_HUB = 5.0
_OWN_DATA = (
    "Local data is read from a file (.jsonl, .json, .csv, .tsv, .parquet), a folder with train and "
    "test files, or a data set saved with save_to_disk."
)


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
