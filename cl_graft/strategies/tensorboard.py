"""A TensorBoard logger without double points, also of a run that resumes in another process.

Avalanche evaluates before, during and after training; several evaluations fall on one step, and
TensorBoard draws a zigzag through them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from avalanche.logging import TensorboardLogger

logger = logging.getLogger(__name__)

_FILES = "events.out.tfevents.*"


class OncePerStepTensorboardLogger(TensorboardLogger):
    """Write every metric to TensorBoard, at most once a step: the first value stays.

    Args:
        tb_log_dir: The folder for the event files; made where it is missing.
        resume: Whether values that the folder's event files hold count as written.
    """

    def __init__(self, tb_log_dir: str | Path = "./tb_data", *, resume: bool = False) -> None:
        # The last step by metric: steps only grow, and a stream has many metrics.
        before = _read_values(Path(tb_log_dir)) if resume else ()
        self._written = {value.tag: step for step, value in before}
        super().__init__(tb_log_dir)

    def position(self) -> dict[str, int]:
        """Flush the log to disk, and return the bytes of every event file by name."""
        self.writer.flush()
        sizes = {}
        for path in sorted(Path(self.writer.log_dir).glob(_FILES)):
            with path.open("rb") as file:
                os.fsync(file.fileno())
                sizes[path.name] = os.fstat(file.fileno()).st_size
        return sizes

    def log_single_metric(self, name: str, value: Any, x_plot: int) -> None:
        """Write a value, unless this metric has one at this step already."""
        if self._written.get(name) == x_plot:
            return
        self._written[name] = x_plot
        super().log_single_metric(name, value, x_plot)

    def scalars(self) -> dict[str, list[tuple[int, float]]]:
        """Return the steps and values of all that was logged as numbers, also before, by tag."""
        self.position()
        by_tag: dict[str, list[tuple[int, float]]] = {}
        for step, value in _read_values(Path(self.writer.log_dir)):
            if value.HasField("simple_value"):
                by_tag.setdefault(value.tag, []).append((step, value.simple_value))
        return by_tag

    def last_step(self, name: str) -> int | None:
        """Return the last step at which a metric was written; None if it was not."""
        return self._written.get(name)

    def __getstate__(self) -> Any:
        """Keep what was written, so that a resumed run draws no doubles either."""
        return super().__getstate__(), self._written

    def __setstate__(self, state: Any) -> None:
        where, self._written = state
        super().__setstate__(where)


def cut_log(folder: Path | str, position: Mapping[str, int]) -> None:
    """Remove what was logged after a position; no process may be writing to the folder."""
    folder = Path(folder)
    for path in sorted(folder.glob(_FILES)):
        size = position.get(path.name)
        if size is None:
            path.unlink()
        elif path.is_file() and path.stat().st_size > size:
            os.truncate(path, size)
    short = [
        name
        for name, size in position.items()
        if not (folder / name).is_file() or (folder / name).stat().st_size < size
    ]
    if short:
        logger.warning(
            "%s: the curves have a gap, as %s was cut or taken away by others",
            folder,
            ", ".join(short),
        )


def _read_values(folder: Path) -> Iterator[tuple[int, Any]]:
    """Yield everything that event files hold, with its step."""
    # Imported here: what only writes a log does not need it.
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    for path in sorted(folder.glob(_FILES)):
        for event in LegacyEventFileLoader(str(path)).Load():
            for value in event.summary.value:
                yield event.step, value
