"""The entry that a model carries while an experience is evaluated, and its removal afterwards.

It is apart from the plugin, which decides which entry answers an experience.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from cl_graft.inference.task_switch import Switch
from cl_graft.strategies.heads import HeldHeads, load_head_

__all__ = ["EvaluatedAnswer"]


class EvaluatedAnswer:
    """The answer of one entry on a model, until the evaluation of an experience ends.

    Args:
        model: The model, without Avalanche's wrappers.
        switch: Switch of the model between the entries of its bank.

    Attributes:
        before: Position of the switch before the evaluation; None for the base.
    """

    def __init__(self, model: nn.Module, switch: Switch) -> None:
        self.before = switch.position
        self._model, self._switch = model, switch
        self._heads: list[HeldHeads] = []

    def carry_(self, position: int, experience: Any) -> None:
        """Carry an entry, with its head at the width that an experience's classes need."""
        self._switch.to(position)
        entry = self._switch.bank.entries[position]
        self._heads.append(HeldHeads(self._model, entry.label))
        load_head_(self._model, entry, classes=_count_classes(experience))

    def carry_unlearned_(self, label: int | None) -> None:
        """Carry the latest entry in prefix mode, else the base, for a task without an entry."""
        bank = self._switch.bank
        self._switch.to(len(bank) - 1 if bank.mode == "prefix" and bank.entries else None)
        if label is not None:
            self._heads.append(HeldHeads(self._model, label))

    def put_heads_back_(self) -> None:
        """Restore the model's heads."""
        for held in self._heads:
            held.put_back_()


def _count_classes(experience: Any) -> int:
    """Return the number of units that an experience's classes need."""
    classes = getattr(experience, "classes_in_this_experience", None) or ()
    return max((int(each) for each in classes), default=-1) + 1
