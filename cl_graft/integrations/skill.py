"""The skill of a fine-tuned model: its region and values, found from the model before and after.

It works for any `nn.Module` and any fine-tuning: a small region with the tuned values, grafted onto
the base, does what the tuned model does (Panigrahi et al., 2023, Eq. 1,
https://arxiv.org/abs/2302.06600). Changes outside of the graftable parameters are no part of a
graft; a skill keeps them beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from cl_graft.errors import InputError, WrongBase
from cl_graft.grafts.graft import Graft, extract, gather, grafted
from cl_graft.grafts.hashing import hash_tensors
from cl_graft.grafts.model_state import preserve_modes, replace_parameters, train_only
from cl_graft.grafts.region import Layout, Parameters, Region
from cl_graft.localization import LocalizerInputs, find_localizer, localize
from cl_graft.localization.grafting_settings import DEFAULT_DENSITY, GraftingSettings
from cl_graft.localization.reach import find_reach
from cl_graft.localization.registry import Score
from cl_graft.models.graftable import graftable_parameters
from cl_graft.runtime.tensor_names import plain_name, tensors_by_name
from cl_graft.runtime.threads import lock_model


@dataclass(frozen=True, eq=False)
class Skill:
    """The result of fine-tuning a model, as a graft and the rest.

    Attributes:
        graft: Region, with the tuned values on it.
        rest: Tuned values, by name, of all parameters and buffers that differ from the base and
            are not graftable: the task's head, running statistics (BatchNorm), and embeddings
            where they were trained along; freeze these to keep a skill small.
        base_sha256: Hash of the base's parameters and buffers but for those in `rest`; empty if it
            is not known, and then no base is checked.
    """

    graft: Graft
    rest: Mapping[str, Tensor] = field(default_factory=dict)
    base_sha256: str = ""

    def __repr__(self) -> str:
        rest = sum(tensor.numel() for tensor in self.rest.values())
        return f"Skill({self.graft!r}, {rest:,} values outside of it in {len(self.rest)} tensors)"

    @contextmanager
    def carried_by(self, model: nn.Module) -> Iterator[nn.Module]:
        """Let a base carry graft and rest for a `with` block, then put it back, bit for bit.

        Raises:
            WrongBase: If the model is not the base that the skill was found on.
        """
        with lock_model(model):
            self._check(model)
            with replace_parameters(tensors_by_name(model), self.rest), grafted(model, self.graft):
                yield model

    def _check(self, model: nn.Module) -> None:
        if not self.base_sha256 or hash_model(model, without=self.rest) == self.base_sha256:
            return
        carries = len(self.graft) and extract(model, self.graft.region).same_bits(self.graft)
        raise WrongBase(
            "the model is not the base that the skill was found on: "
            + ("it carries the skill already" if carries else "its weights or buffers are others")
            + "; load the base as it was before fine-tuning"
        )


def localize_skill(
    base: nn.Module,
    tuned: nn.Module | Mapping[str, Tensor],
    *,
    batches: Sequence[Any] = (),
    loss: Callable[[nn.Module, Any], Tensor] | None = None,
    density: float = DEFAULT_DENSITY,
    localizer: str | Score = "learned_mask",
    exclude: Sequence[str] = ("heads",),
    keep: Callable[[str], bool] | None = None,
    seed: int = 0,
) -> Skill:
    """Find the region that holds the skill of a fine-tuned model.

    The base is evaluated in eval mode, with the tuned head and the tuned running statistics, and
    is put back bit for bit.

    Args:
        base: The model before fine-tuning.
        tuned: The model after it, or its parameters and buffers by name.
        batches: Batches of the task; a localizer that looks at gradients takes each of them once.
        loss: (model, batch) to the mean loss; None means ``model(**batch).loss``, as the models of
            transformers answer a batch with labels.
        density: Share of the graftable coordinates in the region, in (0, 1].
        localizer: Name of a localizer in `cl_graft.localization.LOCALIZERS`, or a score function;
            ``"movement"`` needs no batches.
        exclude: Module paths that are no part of a region, such as ``"fc"`` for a head. Models
            with a stack of blocks are graftable in the blocks alone, so their heads are left out
            anyway.
        keep: Function of a parameter's name that returns False for those to leave out as well.
        seed: Every random choice is a function of it.

    Raises:
        InputError: If the two are not of one architecture, do not differ, or the localizer needs
            batches and there are none.
        ValueError: If `density` is out of range.

    Examples:
        >>> base = nn.Linear(3, 2)
        >>> tuned = {name: p.detach() + 0.1 for name, p in base.named_parameters()}
        >>> skill = localize_skill(base, tuned, density=0.5, localizer="movement")
        >>> len(skill.graft), sorted(skill.rest)
        (4, [])
    """
    if not 0 < density <= 1:
        raise ValueError(f"density must be in (0, 1], got {density}")
    row = find_localizer(localizer)
    if row.needs_gradients and not batches:
        raise InputError(
            f"the localizer {row.name!r} computes gradients, but there are no batches; pass "
            "batches of the task's training rows, or take localizer='movement'"
        )
    parameters = graftable_parameters(base, exclude=exclude, keep=keep)
    here = tensors_by_name(base)
    there = _match_tensors(here, tensors_by_name(tuned) if isinstance(tuned, nn.Module) else tuned)
    differ = [name for name in here if not torch.equal(here[name], there[name])]
    if not any(name in parameters for name in differ):
        raise InputError(
            f"no graftable parameter of the tuned model differs from the base ({len(differ)} other "
            "tensors do); is it the same object twice, or was only the head trained?"
        )
    rest = {name: there[name] for name in differ if name not in parameters}
    ask = loss or _model_loss

    def losses(step: int) -> list[Callable[[], Tensor]]:
        return [lambda: ask(base, batches[step])]

    def measure() -> float:
        if not batches:
            return 0.0
        with torch.no_grad():
            return -sum(float(ask(base, batch)) for batch in batches) / len(batches)

    total = Layout.of(parameters).total
    reach = find_reach(base, parameters, GraftingSettings(localizer=localizer))
    k = sum(reach.divide(max(1, round(density * total)), owned=Region.empty(reach.layout)))
    with (
        replace_parameters(here, rest),
        preserve_modes(base),
        train_only(base, parameters.values()),
    ):
        base.eval()
        inputs = LocalizerInputs(
            model=base,
            parameters=parameters,
            tuned={name: there[name] for name in parameters},
            losses=losses,
            dev_score=measure,
            train_score=measure,
            seed=seed,
        )
        candidates = GraftingSettings(localizer=localizer).candidates(total, k=k)
        ranking = localize(
            inputs, localizer, k=k, steps=max(1, len(batches)), depth=k, candidates=candidates
        )
    return Skill(gather(inputs.tuned, ranking.top(k)), rest, hash_model(base, without=rest))


def hash_model(model: nn.Module, *, without: Collection[str] = ()) -> str:
    """Return the SHA-256 of a model's parameters and buffers but for some."""
    tensors = tensors_by_name(model)
    return hash_tensors({name: tensors[name] for name in tensors if name not in without})


def _match_tensors(base: Parameters, tuned: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Take from the tuned tensors those of the base's names, where they are of one form.

    Buffers that a mapping leaves out are the base's: state dicts hold only the persistent ones.
    """
    matched: dict[str, Tensor] = {}
    tuned = {plain_name(name): tensor for name, tensor in tuned.items()}
    for name, tensor in base.items():
        other = tuned.get(name)
        if other is None and isinstance(tensor, nn.Parameter):
            raise InputError(
                f"the tuned model has no parameter {name!r}; is it another architecture?"
            )
        if other is None:
            other = tensor
        if other.shape != tensor.shape or other.dtype != tensor.dtype:
            raise InputError(
                f"{name} is {_describe_tensor(tensor)} in the base and {_describe_tensor(other)} "
                "in the tuned model; load both in one way, and give the base a head of the tuned "
                "one's size"
            )
        matched[name] = other.detach().to(tensor.device)
    return matched


def _describe_tensor(tensor: Tensor) -> str:
    return f"{tensor.dtype} of shape {tuple(tensor.shape)}"


def _model_loss(model: nn.Module, batch: Any) -> Tensor:
    loss = getattr(model(**batch), "loss", None)
    if loss is None:
        raise InputError(
            f"{type(model).__name__} gives no loss for a batch with {', '.join(sorted(batch))}; "
            "add labels to the batches, or pass loss=..."
        )
    return loss
