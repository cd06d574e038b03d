"""Banks of the small model that the tests of banks, switching and serving share."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from region_strategies import TwoLayers, regions

from cl_graft.grafts.bank import BaseIdentity, Entry, GraftBank, Mode
from cl_graft.grafts.graft import Graft
from cl_graft.grafts.region import Layout, Region

LAYOUT = Layout.of(dict(TwoLayers().named_parameters()))
BASE = BaseIdentity(fingerprint="f" * 64, model="two-layers", dtype="float32")


def empty_bank(mode: Mode = "prefix") -> GraftBank:
    return GraftBank(LAYOUT, BASE, mode)


def grow(
    bank: GraftBank,
    claimed: Region,
    *,
    label: int | None = None,
    builds_on: tuple[int, ...] | None = None,
) -> GraftBank:
    """Append an entry whose values tell which entry they belong to."""
    number = len(bank) + 1
    free = bank.free(claimed, builds_on=builds_on)
    values = torch.arange(len(free), dtype=torch.float32) + 1000 * number
    entry = Entry(
        f"task{number}",
        number if label is None else label,
        Graft(free, values),
        claimed - free,
        builds_on=builds_on,
    )
    return bank.append(entry)


def draw_bank(data: st.DataObject, *, isolated: bool = True) -> GraftBank:
    """Draw a bank: isolated, or one whose entries build on all or on some of those before."""
    mode: Mode = data.draw(st.sampled_from(["prefix", "isolated"] if isolated else ["prefix"]))
    subsets = mode == "prefix" and data.draw(st.booleans())
    bank = empty_bank(mode)
    for position in range(data.draw(st.integers(1, 5))):
        drawn = st.none() | st.sets(st.integers(0, max(position - 1, 0)), max_size=position)
        under = data.draw(drawn) if subsets else None
        builds_on = None if under is None else tuple(sorted(under))
        bank = grow(bank, data.draw(regions(LAYOUT)), builds_on=builds_on)
    return bank


def draw_some_of_each(layout: Layout, generator: torch.Generator) -> Region:
    """Return a region of eight coordinates of every parameter, or all of a smaller one."""
    starts = zip(layout.starts, layout.sizes, strict=False)
    chosen = [start + torch.randperm(size, generator=generator)[:8] for start, size in starts]
    return Region.of(layout, torch.cat(chosen))


def stream(mode: Mode, tasks: int = 4) -> GraftBank:
    """Return a bank of entries with 30 random coordinates each."""
    generator = torch.Generator().manual_seed(0)
    bank = empty_bank(mode)
    for _ in range(tasks):
        chosen = torch.randperm(LAYOUT.total, generator=generator)[:30]
        bank = grow(bank, Region.of(LAYOUT, chosen))
    return bank
