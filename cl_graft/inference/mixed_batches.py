"""Mixed batches: one forward pass over a batch whose rows belong to different tasks.

Where the parameters of a module differ between the tasks of a batch, the module either goes through
its rows task by task, or, if it is a matrix, multiplies all rows with the weights of one task and
adds each row's sparse differences, whichever is faster. Everything else sees the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, get_args

from torch import Tensor, nn

from cl_graft.inference.entry_writes import TensorWrites
from cl_graft.inference.row_groups import (
    RowGroup,
    add_differences_,
    cheaper_to_add,
    compute_by_group,
    first_entry,
    group_rows,
)
from cl_graft.inference.task_switch import Switch
from cl_graft.runtime.forward_override import current_forward, override_forward
from cl_graft.runtime.tensor_names import modules_by_path
from cl_graft.runtime.threads import lock_model
from cl_graft.training.coordinate_gradient import is_linear

MatrixMethod = Literal["fastest", "add", "by_task"]


@contextmanager
def mixed_batch(
    switch: Switch, positions: Sequence[int | None], *, method: MatrixMethod = "fastest"
) -> Iterator[nn.Module]:
    """Answer each row of the batches in a `with` block with an entry of its own.

        with mixed_batch(switch, [0, 0, 3, None]) as model, torch.no_grad():
            outputs = model(batch)  # four rows

    Answers equal those of switching task by task up to float tolerance: x·W + x·ΔW is not bitwise
    x·(W + ΔW). After the block the model carries what it carried before, bit for bit. Rows of one
    task are answered fastest where they stand together.

    Args:
        switch: The switch of the model, which must be in eval mode.
        positions: The entry that answers each row, None for the bare base.
        method: Way to compute matrices: ``"add"`` differences to one product, ``"by_task"`` with
            the weights of each task, or the ``"fastest"`` of the two. Differences of entries that
            share coordinates do not add up: answers of several such entries are computed by task.

    Raises:
        ValueError: If an argument does not fit, or in the block a module with grafts is called
            with something else than one tensor, rows first.
        RuntimeError: If a parameter with grafts belongs to two modules, or at the end a module
            with grafts was not called: the model reads its weights in another way.
    """
    if method not in get_args(MatrixMethod):
        known = ", ".join(map(repr, get_args(MatrixMethod)))
        raise ValueError(f"method must be one of {known}, got {method!r}")
    if not len(positions):
        raise ValueError("a mixed batch needs at least one row, got no positions")
    for position in positions:
        switch.check(position)
    if switch.model.training:
        raise ValueError("mixed batches are answered in eval mode, the model is in training mode")
    same = len(set(positions)) == 1
    with lock_model(switch.model), ExitStack() as stack:
        switch.prepare(positions)
        layers = [] if same else _layers(switch, positions, method=method)
        model = stack.enter_context(switch.locked(first_entry(switch, positions)))
        for layer in layers:
            stack.enter_context(layer.by_row())
        yield model
        idle = [layer.path for layer in layers if not layer.calls]
        if idle:
            raise RuntimeError(
                f"{len(idle)} of the {len(layers)} modules in which these tasks differ were not "
                f"called, {idle[0]!r} first: was the model called in the block? A model that reads "
                "their weights in another way cannot answer mixed batches; switch task by task"
            )


def _layers(
    switch: Switch, positions: Sequence[int | None], *, method: MatrixMethod
) -> list[_Layer]:
    """Return the modules in which the entries of a batch differ."""
    device = next(switch.model.parameters()).device
    groups = group_rows(switch, positions, device=device)
    changed = [span for group in groups for span in (*group.added, *group.taken)]
    owners: dict[int, list[str]] = {}
    modules = modules_by_path(switch.model)
    for path, module in modules.items():
        for parameter in module._parameters.values():
            owners.setdefault(id(parameter), []).append(path)
    layers = []
    for path, all_writes in switch.writes.by_module().items():
        module = modules[path]
        tensors = {}
        for key, tensor, writes in all_writes:
            if not any(writes.part(*span) for span in changed):
                continue
            homes = owners[id(module._parameters[key])]
            if len(homes) > 1:
                raise RuntimeError(
                    f"{key} of {path!r} is a parameter of {homes[-1]!r} too: what is shared cannot "
                    "differ between the rows of a batch; switch task by task"
                )
            tensors[key] = (tensor, writes)
        if tensors:
            layers.append(_Layer(path, module, tensors, groups, method))
    return layers


@dataclass(eq=False)
class _Layer:
    """A module in which the entries of a batch differ, and what is written into it."""

    path: str
    module: nn.Module
    tensors: dict[str, tuple[Tensor, TensorWrites]]
    groups: list[RowGroup]
    method: MatrixMethod
    calls: int = 0

    @property
    def _rows(self) -> int:
        return sum(group.size for group in self.groups)

    @contextmanager
    def by_row(self) -> Iterator[None]:
        """Make the module answer each row with its own task."""
        whole = current_forward(self.module)

        def forward(_: nn.Module, *args: Any, **settings: Any) -> Tensor:
            return self._forward(whole, args, settings)

        with override_forward(self.module, forward):
            yield

    def _forward(
        self, whole: Callable[..., Tensor], args: tuple[Any, ...], settings: dict[str, Any]
    ) -> Tensor:
        self.calls += 1
        x = self._input(args, settings)
        if self._adds(x):
            all_writes = {key: writes for key, (_, writes) in self.tensors.items()}
            return add_differences_(whole(x), x, self.module, all_writes, self.groups)

        def some(rows: Tensor) -> Tensor:
            made = whole(rows, *args[1:], **settings)
            if isinstance(made, Tensor) and made.shape[:1] == rows.shape[:1]:
                return made
            raise self._refusal(f"which makes {_shapes([made])} of {len(rows)} rows")

        return compute_by_group(some, x, self.groups, list(self.tensors.values()))

    def _adds(self, x: Tensor) -> bool:
        if self.method == "by_task" or not is_linear(self.module):
            return False
        if not all(group.adds_up for group in self.groups):
            return False
        if self.method == "add" or "weight" not in self.tensors:
            return True
        weight = self.module.get_parameter("weight")
        writes = self.tensors["weight"][1]
        tokens = x[0].numel() // x.shape[-1]
        differences = 0
        for group in self.groups:
            for span in (*group.added, *group.taken):
                part = writes.part(*span) or slice(0, 0)
                differences += (part.stop - part.start) * group.size * tokens
        return cheaper_to_add(weight, differences=differences, tasks=len(self.groups))

    def _input(self, args: tuple[Any, ...], settings: dict[str, Any]) -> Tensor:
        tensors = [x for x in (*args, *settings.values()) if isinstance(x, Tensor)]
        rows = (self._rows,)
        if args and [id(args[0])] == [*map(id, tensors)] and args[0].shape[:1] == rows:
            return args[0]
        raise self._refusal(f"which is called with {_shapes(tensors)}")

    def _refusal(self, what: str) -> ValueError:
        return ValueError(
            f"the tasks of the batch differ in {self.path!r} ({type(self.module).__name__}), "
            f"{what}: a mixed batch of {self._rows} rows needs modules that make one tensor, "
            "rows first, of one tensor, rows first; switch task by task"
        )


def _shapes(values: Sequence[object]) -> str:
    shown = [str(tuple(x.shape)) if isinstance(x, Tensor) else type(x).__name__ for x in values]
    return f"tensors of shape {', '.join(shown)}" if shown else "no tensor"
