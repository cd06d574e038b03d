"""Task heads: stored whole with their entry, and frozen once their task is learned.

A `TaskModel` and Avalanche's `MultiHeadClassifier` have a head a task label. An
`IncrementalClassifier`, which grows with the classes, is shared by all tasks: every task trains it
from its first values, and every entry stores the values after its own task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from avalanche.models import IncrementalClassifier, MultiHeadClassifier, MultiTaskModule
from torch import Tensor, nn

from cl_graft.errors import WrongArchitecture
from cl_graft.grafts.bank import Entry, GraftBank
from cl_graft.models import TaskModel, graftable_parameters, load_head
from cl_graft.runtime.tensor_names import modules_by_path, parameters_by_name, unwrap_compiled
from cl_graft.strategies.benchmark import MultiTaskText

_MASK = "active_units_T"
"""Name, in a head's state, of the mask that a `MultiHeadClassifier` has beside its heads."""


@dataclass(frozen=True)
class Head:
    """One task's head.

    Attributes:
        path: Name of the module in its model; empty for the model itself.
        module: Module whose parameters train.
        masks: The `MultiHeadClassifier` that masks the head's units; None where nothing does.
        mask: Name of the mask's buffer, (units,), 1 for a unit that answers.
    """

    path: str
    module: nn.Module
    masks: MultiHeadClassifier | None = None
    mask: str = ""

    def state(self) -> dict[str, Tensor]:
        """Return the head's current parameters, buffers and mask."""
        return self.module.state_dict() | self._own_mask()

    def buffers(self) -> dict[str, Tensor]:
        """Return the head's current buffers and mask."""
        return dict(self.module.named_buffers()) | self._own_mask()

    def owners(self) -> Iterator[tuple[str, nn.Module, str]]:
        """Yield the name in `state`, the owning module and the name there of every tensor."""
        for path, module in self.module.named_modules():
            for name in (*module._parameters, *module._buffers):
                yield f"{path}.{name}" if path else name, module, name
        if self.masks is not None:
            yield _MASK, self.masks, self.mask

    def _own_mask(self) -> dict[str, Tensor]:
        return {} if self.masks is None else {_MASK: self.masks.get_buffer(self.mask)}


def unwrap_model(model: nn.Module) -> nn.Module:
    """Return the module whose parameters a bank names: the `TaskModel` inside, or the model."""
    model = unwrap_compiled(model)
    return model.task_model if isinstance(model, MultiTaskText) else model


def has_task_heads(model: nn.Module) -> bool:
    """Tell whether a model answers by task label."""
    return isinstance(model, MultiTaskModule)


def find_head_paths(model: nn.Module) -> tuple[str, ...]:
    """Return the module paths under which all task heads live; none for a plain classifier."""
    if isinstance(model, TaskModel):
        return ("heads",)
    return tuple(path for path, _ in _classifiers(model))


def find_graftable(
    model: nn.Module, *, keep: Callable[[str], bool] | None = None
) -> dict[str, nn.Parameter]:
    """Return the graftable parameters of a model; none where it is only task heads."""
    paths = find_head_paths(model)
    if "" in paths or all(name.startswith(_prefixes(paths)) for name in parameters_by_name(model)):
        return {}
    return graftable_parameters(model, exclude=paths, keep=keep)


def find_heads(model: nn.Module, label: int) -> list[Head]:
    """Return the heads that answer one task; none for a plain classifier, or a missing head."""
    key = str(label)
    if isinstance(model, TaskModel):
        return [Head(f"heads.{key}", model.heads[key])] if key in model.heads else []
    heads = []
    for path, classifier in _classifiers(model):
        if isinstance(classifier, IncrementalClassifier):
            heads.append(Head(path, classifier))
        elif key in classifier.classifiers:
            path_of_task = f"classifiers.{key}"
            masks = classifier if classifier.masking else None
            name = f"active_units_T{key}"
            module = classifier.classifiers[key]
            heads.append(
                Head(f"{path}.{path_of_task}" if path else path_of_task, module, masks, name)
            )
    return heads


def copy_head_state(model: nn.Module, label: int) -> dict[str, Tensor]:
    """Copy the tensors of a task's head by name; of several heads, after the number of each."""
    return {
        f"{prefix}{name}": tensor.detach().cpu().clone()
        for prefix, head in _prefix_names(find_heads(model, label))
        for name, tensor in head.state().items()
    }


def load_head_(model: nn.Module, entry: Entry, *, classes: int = 0) -> None:
    """Load the head that an entry stores, in its stored size; a missing head is made.

    If `classes` needs more units than that, the model's other units stay as they are.
    """
    _make_missing_(model, entry)
    for head, state in _find_states(model, entry):
        for name, owner, key in head.owners():
            if name in state:
                _put_(owner, key, state[name], least=classes)
        _announce_(model, entry.label, units=len(state.get("classifier.weight", ())))


def open_heads_(model: nn.Module, bank: GraftBank) -> None:
    """Load the latest head of every task of a bank; a head that tasks share stays as it is."""
    shared = {id(head) for _, head in _list_shared(model)}
    latest = {entry.label: entry for entry in bank.entries}
    for entry in latest.values():
        _make_missing_(model, entry)
        if not any(id(head.module) in shared for head in find_heads(model, entry.label)):
            load_head_(model, entry)


class HeldHeads:
    """A snapshot of a task's heads, to restore them after others were loaded."""

    def __init__(self, model: nn.Module, label: int, *, values: bool = True) -> None:
        heads = find_heads(model, label)
        self._held = [
            (module, dict(module._modules), dict(module._parameters), dict(module._buffers))
            for head in heads
            for module in head.module.modules()
        ]
        for head in heads:
            if head.masks is not None:
                self._held.append((head.masks, {}, {}, {head.mask: head.masks._buffers[head.mask]}))
        tensors = [t for _, _, *groups in self._held for each in groups for t in each.values()]
        self._values = [(t, t.detach().clone()) for t in tensors if values and t is not None]

    def put_back_(self) -> None:
        """Restore the heads."""
        for module, modules, parameters, buffers in self._held:
            module._modules.update(modules)
            module._parameters.update(parameters)
            module._buffers.update(buffers)
            _count_units_(module)
        with torch.no_grad():
            for tensor, value in self._values:
                tensor.copy_(value)


class FirstValues:
    """First values of heads, so that no task starts from another's, and no bank from another's."""

    def __init__(self) -> None:
        self._values: dict[str, Tensor] = {}

    def begin_(self, model: nn.Module, bank: GraftBank, *, label: int) -> None:
        """Put heads back to their initial values; units that were added since keep theirs."""
        left = _LEFT_HEADS.setdefault(model, {})
        shared = dict(_list_shared(model))
        heads = {} if bank.find(label=label) is not None else _own_heads(model, label)
        for name, parameter in _list_parameters({**heads, **shared}):
            first = self._values.get(name)
            if first is None and name in left and torch.equal(left[name][1], parameter):
                first = left[name][0]
            if first is not None:
                rows = min(len(first), len(parameter))
                with torch.no_grad():
                    parameter[:rows].copy_(first[:rows])
            self._values[name] = parameter.detach().clone()
        for classifier in shared.values():
            for entry in bank.entries:
                for head, state in _find_states(model, entry):
                    if head.module is classifier and "active_units" in state:
                        mask, stored = classifier.active_units, state["active_units"]
                        rows = min(len(mask), len(stored))
                        mask[:rows] |= stored[:rows].to(mask.device)

    def end(self, model: nn.Module, *, label: int) -> None:
        """Remember the trained values beside the first ones, for a plugin after this one."""
        left = _LEFT_HEADS.setdefault(model, {})
        for name, parameter in _list_parameters(
            {**_own_heads(model, label), **dict(_list_shared(model))}
        ):
            if name in self._values:
                left[name] = self._values[name], parameter.detach().clone()


_LEFT_HEADS: WeakKeyDictionary[nn.Module, dict[str, tuple[Tensor, Tensor]]] = WeakKeyDictionary()
"""First values of head parameters and those after their last training, by model and name."""


def _own_heads(model: nn.Module, label: int) -> dict[str, nn.Module]:
    return {head.path: head.module for head in find_heads(model, label)}


def _list_parameters(modules: Mapping[str, nn.Module]) -> Iterator[tuple[str, nn.Parameter]]:
    for path, module in modules.items():
        for name, parameter in module.named_parameters():
            yield f"{path}.{name}", parameter


def _classifiers(
    model: nn.Module,
) -> Iterator[tuple[str, MultiHeadClassifier | IncrementalClassifier]]:
    """Yield path and module of Avalanche's outermost classifiers."""
    paths: list[str] = []
    for path, module in modules_by_path(model).items():
        known = isinstance(module, MultiHeadClassifier | IncrementalClassifier)
        if known and not path.startswith(_prefixes(paths)):
            yield path, module
            paths.append(path)


def _prefixes(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the prefixes of the names of everything inside some modules."""
    return tuple(f"{path}." if path else "" for path in paths)


def _list_shared(model: nn.Module) -> Iterator[tuple[str, IncrementalClassifier]]:
    if isinstance(model, TaskModel):
        return
    for path, classifier in _classifiers(model):
        if isinstance(classifier, IncrementalClassifier):
            yield path, classifier


def _prefix_names(heads: list[Head]) -> list[tuple[str, Head]]:
    """Return heads with the prefix of their names in a state; it is empty for a single head."""
    return [(f"{number}." if len(heads) > 1 else "", head) for number, head in enumerate(heads)]


def _find_states(model: nn.Module, entry: Entry) -> Iterator[tuple[Head, Mapping[str, Tensor]]]:
    """Yield the heads of an entry's task, and what the entry stores of each."""
    for prefix, head in _prefix_names(find_heads(model, entry.label)):
        state = {
            name.removeprefix(prefix): tensor
            for name, tensor in entry.head.items()
            if name.startswith(prefix)
        }
        if state:
            yield head, state


def _make_missing_(model: nn.Module, entry: Entry) -> None:
    key = str(entry.label)
    if isinstance(model, TaskModel):
        if key not in model.heads and entry.head:
            model.add_head(entry.label, load_head(entry, family=model.family))
        return
    for _, classifier in _classifiers(model):
        if isinstance(classifier, IncrementalClassifier) or key in classifier.classifiers:
            continue
        device, units = classifier._adaptation_device, classifier.starting_out_features
        with torch.random.fork_rng(devices=[]):
            head = IncrementalClassifier(
                classifier.in_features, units, masking=False, auto_adapt=False
            )
        classifier.classifiers[key] = head.to(device).train(classifier.training)
        mask = torch.zeros(units, dtype=torch.int8, device=device)
        classifier.register_buffer(f"active_units_T{key}", mask)


def _put_(owner: nn.Module, name: str, stored: Tensor, *, least: int) -> None:
    """Write a stored tensor into a module, in its stored size unless more units are needed."""
    inside = name in owner._parameters
    group: dict[str, Any] = owner._parameters if inside else owner._buffers
    now = group[name]
    if now is None:
        return
    with torch.no_grad():
        if now.shape == stored.shape:
            now.copy_(stored)
        elif inside and stored.shape[1:] != now.shape[1:]:
            raise WrongArchitecture(
                f"the bank keeps a head's {name} of shape {tuple(stored.shape)}, and the model's "
                f"has {tuple(now.shape)}: only the number of classes may differ; build the model "
                "as it was when the bank was written"
            )
        elif len(stored) < min(least, len(now)) and stored.shape[1:] == now.shape[1:]:
            now[: len(stored)].copy_(stored)
        else:
            value = stored.detach().to(now.device, now.dtype, copy=True)
            group[name] = nn.Parameter(value, now.requires_grad) if inside else value
            _count_units_(owner)


def _count_units_(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        module.out_features, module.in_features = module.weight.shape


def _announce_(model: nn.Module, label: int, *, units: int) -> None:
    """Register a task with Avalanche's modules, which may not have seen it in this process."""
    for module in model.modules():
        if isinstance(module, MultiTaskModule):
            module.max_class_label = max(module.max_class_label, units)
            module.known_train_tasks_labels = {*module.known_train_tasks_labels, label}
