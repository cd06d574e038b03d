"""Mixed batches: one forward pass over a batch whose rows belong to different tasks.

Where the parameters of a module differ between the tasks of a batch, the module either goes through
its rows task by task, or, if it is a matrix, multiplies all rows with the weights of one task and
adds each row's sparse differences, x·(W + ΔW) = x·W + x·ΔW, whichever is faster. Everything else
sees the whole batch. Where a coordinate has one owner, a batch begins and ends at the entry of its
middle row (`first_entry`), from which the others differ least; else at the base.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from cl_graft.inference.entry_writes import Spans, TensorWrites, answer_spans, apart, subtract
from cl_graft.inference.task_switch import Switch
from cl_graft.runtime.forward_override import current_forward, override_forward
from cl_graft.runtime.tensor_names import modules_by_path
from cl_graft.runtime.threads import lock_model
from cl_graft.training.coordinate_gradient import is_conv1d, is_linear

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


Rows = slice | Tensor
"""Some rows of a batch: a slice where they stand together, else their numbers."""

_FULL_PRECISION, _HALF_PRECISION, _ACCELERATOR = 16.0, 50.0, 1.0
"""Cost of a difference of a token over that of a weight of one more product.

``benchmarks/performance/row_differences.py`` measured 9 to 31 in full precision and 26 to 109 in
bf16 from 512 tokens on, on two hosts. That of accelerators, where calls count, is a guess.
"""


@dataclass(frozen=True, eq=False)
class RowGroup:
    """The rows of one task in a batch, and what a module writes for them.

    Attributes:
        rows: Rows of the task.
        undo: Entries whose coordinates go back to the base first.
        write: Entries whose values are written then.
        added: Entries that the rows have and the module does not carry.
        taken: Entries that the module carries and the rows do not have.
        back: Entries whose values are to be put back in the end.
        adds_up: Whether no coordinate is in two of the entries that are added or taken.
    """

    rows: Rows
    undo: Spans
    write: Spans
    added: Spans
    taken: Spans
    back: Spans
    adds_up: bool = True

    @property
    def size(self) -> int:
        """Number of rows."""
        rows = self.rows
        return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def first_entry(switch: Switch, positions: Sequence[int | None]) -> int | None:
    """Return the entry from which a batch begins: that of the row in the middle, or the base.

    Of two in the middle it is the earlier one: to add differences rounds less than to take them
    away. Where entries share coordinates it is the base, unless all rows have one entry.
    """
    if switch.shares and len(set(positions)) > 1:
        return None
    return sorted(positions, key=_count)[(len(positions) - 1) // 2]


def group_rows(
    switch: Switch, positions: Sequence[int | None], *, device: torch.device
) -> list[RowGroup]:
    """Gather the rows of each entry: the base's first, then those of the entries in order.

    Every group undoes the entries that it lacks, and writes those that were not there; where
    entries share coordinates, it writes all of its own in order.
    """
    bank = switch.bank
    by_entry: dict[int, list[int]] = {}
    for row, position in enumerate(positions):
        by_entry.setdefault(_count(position), []).append(row)
    here = answer_spans(bank, first_entry(switch, positions))
    groups: list[RowGroup] = []
    before, restored = here, ()
    for count, rows in sorted(by_entry.items()):
        position = count - 1 if count else None
        mine = answer_spans(bank, position)
        together = rows[-1] - rows[0] + 1 == len(rows)
        where = slice(rows[0], rows[-1] + 1) if together else torch.tensor(rows, device=device)
        taken = subtract(here, mine)
        groups.append(
            RowGroup(
                where,
                undo=subtract(before, mine),
                write=apart(mine) if switch.shares else subtract(mine, before),
                added=subtract(mine, here),
                taken=taken,
                back=subtract(taken, restored),
                adds_up=position is None or switch.adds_up(position),
            )
        )
        before, restored = mine, tuple(sorted((*restored, *groups[-1].back)))
    return groups


def compute_by_group(
    whole: Callable[[Tensor], Tensor],
    x: Tensor,
    groups: Sequence[RowGroup],
    tensors: Sequence[tuple[Tensor, TensorWrites]],
) -> Tensor:
    """Compute the rows group by group by `whole`, with each one's weights, and put these back."""

    def write_(spans: Spans, *, base: bool) -> None:
        for tensor, writes in tensors:
            for low, high in spans:
                writes.write_(tensor, low, high, base=base)

    parts: list[Tensor] = []
    cache = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)  # it would keep the first task's weights
    try:
        for group in groups:
            write_(group.undo, base=True)
            write_(group.write, base=False)
            parts.append(whole(x[group.rows]))
    finally:
        torch.set_autocast_cache_enabled(cache)
        for group in groups:
            write_(group.write, base=True)
        for group in groups:
            write_(group.back, base=False)
    return _join_parts(parts, [group.rows for group in groups], rows=len(x))


def cheaper_to_add(weight: Tensor, *, differences: int, tasks: int) -> bool:
    """Tell whether adding differences of all tokens is faster than one product a task."""
    cost = _FULL_PRECISION if weight.element_size() > 2 else _HALF_PRECISION
    if weight.device.type != "cpu":
        cost = _ACCELERATOR
    return cost * differences < (tasks - 1) * weight.numel()


def add_differences_(
    y: Tensor,
    x: Tensor,
    module: nn.Module,
    all_writes: Mapping[str, TensorWrites],
    groups: Sequence[RowGroup],
) -> Tensor:
    """Add x·ΔW + Δb of each row to a linear layer's y = x·W + b, in place.

    The columns of x, which may have another dtype than y, are gathered where ΔW touches them.
    """
    width = module.get_parameter("weight").shape[1]
    index, weight, of_weight = _differences(all_writes.get("weight"), groups)
    columns, outputs = index % width, index // width
    if is_conv1d(module):
        columns, outputs = outputs, columns
    index, bias, of_bias = _differences(all_writes.get("bias"), groups)
    for group, weights, biases in zip(groups, of_weight, of_bias, strict=True):
        rows = group.rows
        picked = y[rows]  # a view where the rows stand together
        # Indexing the last of three dimensions takes 5 times as long.
        flat = picked.view(-1, y.shape[-1])
        for inside, sign in weights:
            part = x[rows].reshape(-1, x.shape[-1]).index_select(1, columns[inside])
            part = part.mul_(weight[inside]).to(y.dtype)
            flat.index_add_(1, outputs[inside], part, alpha=sign)
        for inside, sign in biases:
            part = bias[inside].to(y.dtype)
            row = part.new_zeros(y.shape[-1])
            flat += row.index_add_(0, index[inside], part, alpha=sign)
        if not isinstance(rows, slice):
            y[rows] = picked
    return y


def _differences(
    writes: TensorWrites | None, groups: Sequence[RowGroup]
) -> tuple[Tensor, Tensor, list[list[tuple[slice, int]]]]:
    """Return the coordinates and differences of a tensor, and each group's parts of them.

    The sign of a part is 1 for what the module lacks, -1 for what it carries and the rows must not
    have.
    """
    parts = [
        [
            (part, sign)
            for spans, sign in ((group.added, 1), (group.taken, -1))
            for span in spans
            if writes is not None and (part := writes.part(*span)) is not None
        ]
        for group in groups
    ]
    every = [part for group_parts in parts for part, _ in group_parts]
    if writes is None or not every:
        return torch.empty(0, dtype=torch.int64), torch.empty(0), parts
    first = min(part.start for part in every)
    whole = slice(first, max(part.stop for part in every))
    moved = [
        [(slice(part.start - first, part.stop - first), sign) for part, sign in group_parts]
        for group_parts in parts
    ]
    return writes.index[whole], writes.values[whole] - writes.base[whole], moved


def _join_parts(parts: list[Tensor], places: list[Rows], *, rows: int) -> Tensor:
    """Put the parts of a batch where their rows stand."""
    starts = [where.start for where in places if isinstance(where, slice)]
    if len(starts) == len(parts):
        return torch.cat([parts[i] for i in sorted(range(len(parts)), key=starts.__getitem__)])
    joined = parts[0].new_empty(rows, *parts[0].shape[1:])
    for part, where in zip(parts, places, strict=True):
        joined[where] = part
    return joined


def _count(position: int | None) -> int:
    """Return how many entries there are up to one."""
    return 0 if position is None else position + 1
