"""The bytes of a task's entry in a bank, known before the task is learned."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from cl_graft.grafts.bank import BaseIdentity, Entry, GraftBank, RecordedBatch
from cl_graft.grafts.graft import Graft
from cl_graft.grafts.hashing import environment
from cl_graft.grafts.region import Layout, Region
from cl_graft.models import TaskModel, graftable_parameters
from cl_graft.models.text_generation import TextHead
from cl_graft.storage.elias_fano import packed_size
from cl_graft.storage.graft_file import pack_entry

_RECORDED_ROWS = 8
_METADATA = {"about as long as those of a learned task": "-" * 590}


@dataclass(frozen=True)
class EntryBytes:
    """The file of a task's entry in a bank, in bytes.

    Attributes:
        indices: Bytes of the region's coordinates, 2 + log2(1 / density) bits each at most.
        values: Bytes of the region's values, in the model's type.
        head: Bytes of the task's head, fp32; 0 for prompts.
        recorded_batch: Bytes of the recorded batch and its logits.
        rest: Bytes of names, hashes and metadata.
    """

    indices: int
    values: int
    head: int
    recorded_batch: int
    rest: int

    @property
    def total(self) -> int:
        """Bytes of the whole file."""
        return self.indices + self.values + self.head + self.recorded_batch + self.rest


def entry_bytes(model: TaskModel, head: nn.Module, *, size: int, length: int) -> EntryBytes:
    """Return what the entry of a region of `size` coordinates, all owned, takes on disk.

    An entry of one coordinate is packed, and the other coordinates are added as the file format
    stores them. The model may be one of fake tensors; `length` is the number of tokens a row.
    """
    parameters = graftable_parameters(model)
    layout = Layout.of(parameters)
    dtype = next(iter(parameters.values())).dtype
    vocabulary = getattr(model.text_config, "vocab_size", 2)
    classes = _count_recorded(head)
    inputs = torch.ones(_RECORDED_ROWS, 2, length, dtype=torch.int64)
    inputs[:, 0] = vocabulary - 1
    state = {name: torch.zeros(t.shape, dtype=t.dtype) for name, t in head.state_dict().items()}
    entry = Entry(
        task="sentiment",
        label=0,
        owned=Graft(Region.of(layout, [0]), torch.zeros(1, dtype=dtype)),
        owned_before=Region.empty(layout),
        head=state,
        weights_sha256="0" * 64,
        recorded_batch=RecordedBatch(inputs, torch.zeros(_RECORDED_ROWS, classes), environment()),
        metadata=_METADATA,
    )
    base = BaseIdentity("0" * 64, model.name, str(dtype).removeprefix("torch."))
    written = len(pack_entry(entry, GraftBank(layout, base)))
    head_bytes = sum(t.nbytes for t in state.values())
    token_bytes = 2 if vocabulary <= 2**16 else 4
    batch_bytes = _RECORDED_ROWS * (length * (token_bytes + 1) + 4 * classes)
    coordinate_bytes = packed_size(1, layout.total) + dtype.itemsize
    return EntryBytes(
        indices=packed_size(size, layout.total),
        values=size * dtype.itemsize,
        head=head_bytes,
        recorded_batch=batch_bytes,
        rest=written - coordinate_bytes - head_bytes - batch_bytes,
    )


def _count_recorded(head: nn.Module) -> int:
    """Return how many values of a row an entry records: a logit a class, or a decoded answer."""
    if isinstance(head, TextHead):
        return 2 * head.longest
    return head.out_features if isinstance(head, nn.Linear) else len(head.get_buffer("token_ids"))
