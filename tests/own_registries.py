"""Registries as they were: what a test registers is gone after it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from cl_graft.data.streams import STREAMS
from cl_graft.kinds import KINDS
from cl_graft.localization.registry import LOCALIZERS
from cl_graft.metrics.task_score import METRICS
from cl_graft.models.heads import HEADS
from cl_graft.strategies.registry import STRATEGIES

REGISTRIES = (KINDS, LOCALIZERS, METRICS, STRATEGIES, STREAMS)


@contextmanager
def registries_restored() -> Iterator[None]:
    """Take back at the end what was registered inside, in every registry and in the heads."""
    entries = [dict(registry) for registry in REGISTRIES]
    with mock.patch.dict(HEADS):
        try:
            yield
        finally:
            for registry, before in zip(REGISTRIES, entries, strict=True):
                registry._entries = before


def install_package(folder: Path, name: str, module: str, *, group: str, **points: str) -> None:
    """Make a folder look as if pip had installed a package of one module with entry points."""
    information = folder / f"{name}-1.0.dist-info"
    information.mkdir(parents=True)
    (folder / f"{name}.py").write_text(module)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [f"[{group}]", *(f"{point} = {value}" for point, value in points.items())]
    (information / "entry_points.txt").write_text("\n".join(lines))
