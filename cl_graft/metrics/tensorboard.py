"""TensorBoard without double points.

Avalanche evaluates before training, while an experience trains, after it, and when the user asks
to; at the end of an experience several of these fall on one step, and TensorBoard draws a zigzag
through them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from avalanche.logging import TensorboardLogger
from matplotlib.figure import Figure

__all__ = ["OncePerStepTensorboardLogger"]


class OncePerStepTensorboardLogger(TensorboardLogger):
    """Write every metric to TensorBoard, at most once a step: the first value stays.

    Args:
        tb_log_dir: The folder for the event files; made where it is missing.
        filename_suffix: Goes to the end of an event file's name.
    """

    def __init__(self, tb_log_dir: str | Path = "./tb_data", filename_suffix: str = "") -> None:
        super().__init__(tb_log_dir, filename_suffix)
        self._written: set[tuple[str, int]] = set()

    def log_single_metric(self, name: str, value: Any, x_plot: int) -> None:
        """Write a value, unless this metric has one at this step already."""
        if (name, x_plot) in self._written:
            return
        self._written.add((name, x_plot))
        super().log_single_metric(name, value, x_plot)

    def add_figure(self, name: str, figure: Figure, step: int) -> None:
        """Write a picture, unless there is one of this name at this step already."""
        self.log_single_metric(name, figure, step)

    def __getstate__(self) -> Any:
        """Keep what was written, so that a resumed run draws no doubles either."""
        return super().__getstate__(), self._written

    def __setstate__(self, state: Any) -> None:
        where, self._written = state
        super().__setstate__(where)
