"""A server that answers rows of different tasks in one batch: grafts and heads by row."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from cl_graft.grafts.bank import find_entry
from cl_graft.inference.mixed_batches import MatrixMethod, mixed_batch
from cl_graft.inference.task_switch import Switch
from cl_graft.models.load import load_head
from cl_graft.models.task_model import TaskModel


class TaskServer:
    """Answers batches in which every row asks a task of its own.

    Rows are sorted by task before they are computed, and their answers put back in order. While it
    serves, `switch.add` takes over what a bank has learned since. Several threads may use it; they
    take turns.

    Args:
        switch: Switch of a `TaskModel` in eval mode; what the model carries stays as it is.

    Attributes:
        switch: The switch.
    """

    def __init__(self, switch: Switch) -> None:
        if not isinstance(switch.model, TaskModel):
            raise TypeError(
                f"expected the switch of a TaskModel, got {type(switch.model).__name__}"
            )
        self.switch = switch
        self._model = switch.model
        self._heads: dict[int, nn.Module] = {}

    def answer(
        self, x: Tensor, tasks: Sequence[int | str], *, method: MatrixMethod = "fastest"
    ) -> list[Tensor]:
        """Answer each row with an entry of the bank, through that entry's head.

        Args:
            x: A batch as `TaskModel.forward` takes it.
            tasks: What answers each row: an entry's position, or a task's name, whose latest entry
                answers.
            method: As in `mixed_batch`.

        Returns:
            The logits of each row, of shape (classes of its task,), fp32.

        Raises:
            InputError: If there is no such task.
            ValueError: If there is not one task a row, or the model cannot answer mixed batches
                (see `mixed_batch`).
        """
        if len(tasks) != len(x):
            raise ValueError(f"expected a task for each of {len(x)} rows, got {len(tasks)}")
        positions = [find_entry(self.switch.bank, task) for task in tasks]
        order = sorted(range(len(x)), key=positions.__getitem__)
        asked = [positions[row] for row in order]
        heads = [self._find_head(position) for position in asked]
        self.switch.prepare(asked)
        with self._model.answering():
            answers = self._model.answer_rows(
                x[order],
                heads,
                carry=lambda rows: mixed_batch(
                    self.switch, [asked[row] for row in rows], method=method
                ),
            )
        by_row = dict(zip(order, answers, strict=True))
        return [by_row[row] for row in range(len(x))]

    def _find_head(self, position: int) -> nn.Module:
        self.switch.check(position)
        if position not in self._heads:
            head = load_head(self.switch.bank.entries[position], family=self._model.family)
            self._heads[position] = head.requires_grad_(False).to(self._model.device).eval()
        return self._heads[position]
