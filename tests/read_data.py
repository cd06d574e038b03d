"""Reading of the rows of a data set, which `load_task` draws from."""

from typing import Any

from cl_graft.data import TaskSettings
from cl_graft.data.bad_rows import BadRows
from cl_graft.data.columns import LabelledRows
from cl_graft.data.dataset_presets import Preset
from cl_graft.data.readers import make_rows, read_files
from cl_graft.data.text_files import Reading


def read_rows(
    source: Any,
    *,
    reading: Reading | None = None,
    bad_rows: BadRows | None = None,
    preset: Preset | None = None,
    **settings: Any,
) -> LabelledRows:
    """Read all rows; those that cannot be used are errors unless `bad_rows` takes them."""
    files = read_files(source, reading or Reading(), bad_rows or BadRows())
    return make_rows(files, TaskSettings(**settings), preset=preset)
