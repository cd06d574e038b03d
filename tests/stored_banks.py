"""Banks with arbitrary bits, exact comparison and killed writes, for the tests of the store."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from region_strategies import FRAGILE, bits
from torch import Tensor

from cl_graft.grafts.bank import BaseIdentity, Entry, GraftBank, Mode, RecordedBatch
from cl_graft.grafts.graft import Graft
from cl_graft.grafts.region import Layout, Region

LAYOUT = Layout(("block.weight", "block.bias"), ((40, 30), (50,)))
NAMES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
DTYPES = list(NAMES)


def base_identity(dtype: torch.dtype = torch.float32) -> BaseIdentity:
    return BaseIdentity("a" * 64, "org/model", NAMES[dtype], {"family": "encoder", "größe": 1.5})


def values(count: int, dtype: torch.dtype, seed: int) -> Tensor:
    """Draw arbitrary bit patterns: subnormals, infinities and NaN payloads among them."""
    generator = torch.Generator().manual_seed(seed)
    integers = torch.int32 if dtype == torch.float32 else torch.int16
    size = 32 if dtype == torch.float32 else 16
    drawn = torch.randint(-(2 ** (size - 1)), 2 ** (size - 1), (count,), generator=generator)
    drawn[:3] = torch.tensor(FRAGILE[dtype])[:count]
    return drawn.to(integers).view(dtype)


def sample(layout: Layout, count: int, seed: int) -> Region:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(layout.total, (2 * count,), generator=generator).unique()
    return Region(layout, drawn[torch.randperm(len(drawn), generator=generator)[:count]].sort()[0])


def text_batch(rows: int, length: int, *, ids: int = 30522, pad: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    batch = torch.zeros(rows, 2, length, dtype=torch.int64)
    batch[:, 0] = pad
    for row in range(rows):
        used = int(torch.randint(1, length + 1, (), generator=generator))
        batch[row, 0, :used] = torch.randint(ids, (used,), generator=generator)
        batch[row, 1, :used] = 1 + (torch.arange(used) > used // 2).long()
    return batch


def entry_of(bank: GraftBank, claimed: Region, *, task: str = "qnli", **more: object) -> Entry:
    number = len(bank)
    dtype = getattr(torch, bank.base.dtype)
    free = bank.free(claimed)
    entry = Entry(
        task,
        number,
        Graft(free, values(len(free), dtype, number)),
        claimed - free,
        head={"weight": values(12, dtype, 9).reshape(3, 4), "scale": torch.tensor(0.5)},
        weights_sha256=f"{number:064x}",
        metadata={"label_names": ["entailment", "größer"], "score": 0.75, "nothing": None},
    )
    return replace(entry, **more)  # type: ignore[arg-type]


def bank_of(dtype: torch.dtype = torch.float32, mode: Mode = "prefix", tasks: int = 3) -> GraftBank:
    bank = GraftBank(LAYOUT, base_identity(dtype), mode)
    for number, task in zip(range(tasks), ["qnli", "ag_news", "sst2"], strict=False):
        claimed = sample(LAYOUT, 60, number)
        recorded_batch = RecordedBatch(
            text_batch(4, 16), torch.randn(4, 2), {"torch": "2.13.0", "threads": "1"}
        )
        standalone = Graft(claimed, values(60, dtype, number)) if number == 1 else None
        more = {"recorded_batch": recorded_batch, "standalone": standalone} if number else {}
        bank = bank.append(entry_of(bank, claimed, task=task, **more))
    return bank


def bank_of_one(**more: object) -> GraftBank:
    """Make a bank of one entry with some fields made otherwise."""
    bank = GraftBank(LAYOUT, base_identity())
    return bank.append(entry_of(bank, sample(LAYOUT, 5, 0), **more))  # type: ignore[arg-type]


def same_tensor(a: Tensor, b: Tensor) -> bool:
    same_kind = a.dtype == b.dtype and a.shape == b.shape
    return same_kind and torch.equal(bits(a.reshape(-1)), bits(b.reshape(-1)))


def _same_graft(a: Graft | None, b: Graft | None) -> bool:
    return a is b is None or (a is not None and b is not None and a.same_bits(b))


def _same_batch(a: RecordedBatch | None, b: RecordedBatch | None) -> bool:
    if a is None or b is None:
        return a is b
    same_rows = same_tensor(a.inputs, b.inputs) and same_tensor(a.logits, b.logits)
    return same_rows and dict(a.environment) == dict(b.environment)


def _same_entry(a: Entry, b: Entry) -> bool:
    plain = ("task", "label", "weights_sha256", "builds_on", "region")
    return (
        all(getattr(a, name) == getattr(b, name) for name in plain)
        and a.owned.same_bits(b.owned)
        and a.head.keys() == b.head.keys()
        and all(same_tensor(a.head[name], b.head[name]) for name in a.head)
        and _same_graft(a.standalone, b.standalone)
        and _same_batch(a.recorded_batch, b.recorded_batch)
        and dict(a.metadata) == dict(b.metadata)
    )


def same_bank(a: GraftBank, b: GraftBank) -> bool:
    return (
        (a.layout, a.base, a.mode, len(a)) == (b.layout, b.base, b.mode, len(b))
        and all(_same_entry(x, y) for x, y in zip(a.entries, b.entries, strict=True))
    )  # fmt: skip


def content(folder: Path) -> dict[str, bytes]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def transformer_layout(blocks: int, hidden: int, inner: int) -> Layout:
    """Return the layout of RoBERTa's block stack: 16 tensors a block."""
    square = (hidden, hidden)
    weights = {
        **{f"attention.self.{part}": square for part in ("query", "key", "value")},
        "attention.output.dense": square,
        "intermediate.dense": (inner, hidden),
        "output.dense": (hidden, inner),
        "attention.output.LayerNorm": (hidden,),
        "output.LayerNorm": (hidden,),
    }
    shapes = {
        f"backbone.encoder.layer.{block}.{part}.{kind}": shape
        for block in range(blocks)
        for part, weight in weights.items()
        for kind, shape in (("weight", weight), ("bias", weight[:1]))
    }
    return Layout(tuple(shapes), tuple(shapes.values()))


def stops_at_a_write(
    change: Callable[[], object], *, after: int, error: type[BaseException] = KeyboardInterrupt
) -> bool:
    """Make a change that ends where it would replace a file after so many; tell whether it did."""
    really, writes = os.replace, 0

    def crash(source: Path, target: Path) -> None:
        nonlocal writes
        writes += 1
        if writes > after:
            raise error("no power")
        really(source, target)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "replace", crash)
        try:
            change()
        except error:
            return True
    return False
