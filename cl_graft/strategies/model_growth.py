"""Banks of models that get new parameters between two tasks.

Coordinates are named by their parameter, so new parameters are new coordinates. They are numbered
after all others, wherever they stand in the model, and what earlier tasks own keeps its numbers.
"""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from cl_graft.errors import WrongArchitecture
from cl_graft.grafts.bank import BaseIdentity, Entry, GraftBank
from cl_graft.grafts.graft import Graft, named
from cl_graft.grafts.hashing import hash_tensors
from cl_graft.grafts.region import Layout, Region
from cl_graft.inference.task_switch import Switch

__all__ = ["extend_bank", "extend_layout", "reorder_layout"]


def reorder_layout(layout: Layout, *, like: Layout) -> Layout:
    """Return `like` where both hold the same parameters in any order, and `layout` otherwise."""
    here, there = (dict(zip(each.names, each.shapes, strict=True)) for each in (layout, like))
    return like if here == there else layout


def extend_layout(layout: Layout, found: Layout) -> Layout:
    """Return a layout with the parameters that a model has in addition at its end.

    Args:
        layout: What tasks were learned on.
        found: What the model has now.

    Raises:
        WrongArchitecture: If a parameter is missing there, or has another shape.
    """
    now = dict(zip(found.names, found.shapes, strict=True))
    for name, shape in zip(layout.names, layout.shapes, strict=True):
        if now.get(name) != shape:
            came = f"has the shape {now[name]}" if name in now else "is missing"
            raise WrongArchitecture(
                f"{name} had the shape {shape} when earlier tasks were learned, and {came} now: "
                "their grafts hold places in it. A model may get new parameters between tasks, but "
                "those that it has must stay; widen a head, or add a module"
            )
    known = set(layout.names)
    more = {name: shape for name, shape in now.items() if name not in known}
    if not more:
        return layout
    return Layout((*layout.names, *more), (*layout.shapes, *more.values()))


def extend_bank(model: nn.Module, bank: GraftBank, layout: Layout, base: BaseIdentity) -> Switch:
    """Make the switch of a bank on a model that has more parameters than the bank knows.

    Args:
        model: The model at its base.
        bank: What was learned before they came.
        layout: The bank's layout with the new parameters at its end.
        base: The base with them.
    """
    entries = tuple(_on(entry, layout) for entry in bank.entries)
    switch = Switch(model, replace(bank, layout=layout, base=base, entries=entries))
    hashed = []
    for position, entry in enumerate(entries):
        with switch.carrying(position):
            hashed.append(replace(entry, weights_sha256=hash_tensors(named(model, layout))))
    switch.bank = replace(switch.bank, entries=tuple(hashed))
    return switch


def _on(entry: Entry, layout: Layout) -> Entry:
    """Return an entry in a layout whose first coordinates are those of its own."""

    def graft(old: Graft) -> Graft:
        return Graft(Region(layout, old.region.index), old.values)

    return replace(
        entry,
        owned=graft(entry.owned),
        lost=Region(layout, entry.lost.index),
        standalone=graft(entry.standalone) if entry.standalone is not None else None,
    )
