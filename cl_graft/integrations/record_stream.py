"""Record base and tasks of an Avalanche program in its bank, so that commands open it."""

from __future__ import annotations

from dataclasses import replace
from typing import TypedDict

from cl_graft.grafts.bank import BaseIdentity
from cl_graft.models import Loaded
from cl_graft.settings import config_from
from cl_graft.settings.bank_metadata import base_identity, task_metadata
from cl_graft.strategies import TaskMetadata
from cl_graft.strategies.benchmark import TextStream


class StreamRecord(TypedDict):
    """Two arguments of `GraftingPlugin`: the base, and the tasks by task label."""

    identity: BaseIdentity
    metadata: dict[int, TaskMetadata]


def record_stream(loaded: Loaded, stream: TextStream, *, seed: int = 0) -> StreamRecord:
    """Describe base and tasks for a bank, as runs do.

    Then `open_bank`, `verify` and the commands `predict`, `verify` and `add` load the base by
    themselves, and know the labels of the tasks. For example::

        plugin = cg.GraftingPlugin(settings, **cg.record_stream(loaded, stream))

    Args:
        loaded: The model at its base, as `load_model` returned it.
        stream: The tasks, encoded for it.
        seed: Seed with which later tasks are added to the bank.

    Returns:
        The arguments. Later tasks are added with the default settings, unless others are given,
        as the settings of a program are not recorded.

    Raises:
        InputError: If no bank can record it, as a folder whose name holds control characters.
    """
    model = loaded.model
    settings = {
        "name": loaded.name,
        "family": model.family,
        "pooling": model.pooling,
        "precision": model.precision,
        "dtype": str(next(model.parameters()).dtype).removeprefix("torch."),
        "trust_remote_code": any(
            type(part).__module__.startswith("transformers_modules")
            for part in (loaded.tokenizer, *model.modules())
        ),
    }
    length = stream.tasks[0].splits["train"][0].shape[-1]
    tasks = {"tasks": ["recorded one by one"], "max_length": length}
    config = config_from({"model": settings, "stream": tasks}, source="the stream")
    metadata: dict[int, TaskMetadata] = {}
    for label, encoded in enumerate(stream.tasks, start=stream.first_label):
        targets = encoded.splits["train"][1]
        task = task_metadata(encoded.task, config, seed=seed, targets=targets)
        # How a run drew and learned its tasks says nothing of this one.
        values = {k: v for k, v in task.metadata.items() if k not in ("shots", "settings_sha256")}
        metadata[label] = replace(task, metadata=values)
    return {"identity": base_identity(loaded, config, seed=seed), "metadata": metadata}
