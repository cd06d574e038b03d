"""Registries as they were: what a test registers is gone after it."""

from collections.abc import Iterator
from contextlib import contextmanager
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
