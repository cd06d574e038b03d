"""A bank on a model, and the check that they belong together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import torch
from torch import nn

from cl_graft.errors import WrongArchitecture, WrongBase
from cl_graft.grafts.bank import BaseIdentity, GraftBank
from cl_graft.grafts.base_weights_check import identify
from cl_graft.grafts.region import Layout
from cl_graft.inference.task_switch import Switch, put_back_
from cl_graft.models.answering_config import describe_other_settings
from cl_graft.storage.serialization import check_fingerprint, check_layout
from cl_graft.strategies.task_heads import find_graftable, find_head_paths, open_heads_

Keep = Callable[[str], bool]
"""Function of a parameter's name that returns whether regions may contain the parameter."""


class BankOnModel:
    """A bank, and the model that carries its answers."""

    def __init__(
        self,
        bank: GraftBank | None,
        *,
        mode: Literal["prefix", "isolated"],
        identity: BaseIdentity | None = None,
        keep: Keep | None = None,
    ) -> None:
        self._bank = bank
        self._mode: Literal["prefix", "isolated"] = mode
        self._identity = identity
        self._keep = keep
        self._switch: Switch | None = None

    @property
    def bank(self) -> GraftBank | None:
        """The bank as it is now; None before the first model."""
        return self._bank if self._switch is None else self._switch.bank

    @property
    def switch(self) -> Switch | None:
        """The switch that moves the model between the bank's answers; None before the first."""
        return self._switch

    def open(self, model: nn.Module) -> Switch:
        """Return the switch on a model, the bank's base, and load the bank's heads into it."""
        if self._switch is not None and self._switch.model is model:
            return self._switch
        put_back_(model)
        bank, identity = self.bank, self._identity
        layout = _find_layout(model, bank, self._keep)
        if bank is None:
            bank = GraftBank(layout, identify_model(model, identity), self._mode)
        check_layout(bank.layout, layout, name="the bank")
        if identity is not None:
            check_fingerprint(bank.base, identity.fingerprint, name="the bank")
            configs = (base.metadata.get("config") for base in (bank.base, identity))
            if other := describe_other_settings(*configs):
                raise WrongBase(f"the bank belongs to a base with another config: {other}")
        switch = Switch(model, bank)
        open_heads_(model, bank)
        self._switch = switch
        return switch

    def begin(self, model: nn.Module) -> Switch:
        """Return the switch, after a check that the model has the parameters of earlier tasks."""
        switch = self.open(model)
        known = switch.bank.layout
        layout = _find_layout(model, switch.bank, self._keep)
        now = dict(zip(layout.names, layout.shapes, strict=True))
        for name, shape in zip(known.names, known.shapes, strict=True):
            if now.get(name) != shape:
                came = f"has the shape {now[name]}" if name in now else "is missing"
                raise WrongArchitecture(
                    f"{name} had the shape {shape} when earlier tasks were learned, and {came} "
                    "now: their grafts hold places in it; only heads may change between tasks"
                )
        if layout != known:
            more = next(name for name in now if name not in known.names)
            raise WrongArchitecture(
                f"the model got parameters since its first task, {more} first; only heads may be "
                "added between tasks"
            )
        return switch


def identify_model(model: nn.Module, identity: BaseIdentity | None = None) -> BaseIdentity:
    """Describe a model at its base for a bank."""
    if identity is not None and identity.weights_sha256:
        return identity
    dtypes = {p.dtype for p in find_graftable(model).values()}
    dtype = next(iter(dtypes)) if len(dtypes) == 1 else torch.float32
    base = identify(model, heads=find_head_paths(model), dtype=str(dtype).removeprefix("torch."))
    if identity is None:
        return base
    return replace(identity, metadata={**base.metadata, **identity.metadata})


def _find_layout(model: nn.Module, bank: GraftBank | None, keep: Keep | None) -> Layout:
    """Return the layout of a model's graftable parameters, in the bank's order if it has these."""
    layout = Layout.of(find_graftable(model, keep=keep))
    if bank is None:
        return layout
    here, there = (dict(zip(x.names, x.shapes, strict=True)) for x in (layout, bank.layout))
    return bank.layout if here == there else layout
