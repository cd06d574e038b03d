"""The base model of a bank: loaded from its checkpoint, and checked against the bank's record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import cast

from cl_graft.errors import InputError, WrongArchitecture, WrongBase, WrongTokenizer
from cl_graft.grafts.bank import BaseIdentity, Entry, GraftBank
from cl_graft.grafts.region import Layout
from cl_graft.models import (
    Loaded,
    check_head,
    graftable_parameters,
    load_head,
    load_model,
)
from cl_graft.models.config_settings import describe_other_settings
from cl_graft.settings.bank_metadata import BaseHashes, base_hashes
from cl_graft.storage.files import report_damage


def load_base(
    base: BaseIdentity, *, model: str | None = None, trust_remote_code: bool = False
) -> Loaded:
    """Load the checkpoint that a bank names, in the bank's family, pooling and dtype.

    Code that comes with a checkpoint runs only if it is trusted.
    """
    family = base.metadata.get("family")
    if not isinstance(family, str):
        raise InputError(
            "the bank does not record how its base is loaded: it was made in Python, by a plugin "
            "without what cl_graft.record_stream gives; make its model in Python as it was made "
            "then, and open the bank with cl_graft.load_bank"
        )
    if base.metadata.get("trust_remote_code") and not trust_remote_code:
        raise InputError(
            f"the base {model or base.model!r} brings its own Python code, which runs only with "
            "trust_remote_code=True, on the command line --trust-remote-code (read that code first)"
        )
    return load_model(
        model or base.model,
        family=family,
        pooling=str(base.metadata.get("pooling", "mean")),
        dtype=base.dtype,
        precision=str(base.metadata.get("precision", "fp32")),
        revision=cast(str | None, base.metadata.get("revision")) if model is None else None,
        trust_remote_code=trust_remote_code,
    )


def check_bank_model(bank: GraftBank, loaded: Loaded, *, name: str) -> GraftBank:
    """Refuse a model that a bank was not made on, or cannot be answered with.

    Entries that were not read are checked when they are, so go on with the bank that is returned.
    """
    layout = Layout.of(graftable_parameters(loaded.model))
    where = f"{name} belongs to another model than {loaded.name!r}:"
    if layout != bank.layout:
        raise WrongArchitecture(
            f"{where} {bank.layout.total} graftable coordinates in {len(bank.layout.names)} "
            f"parameters there, {layout.total} in {len(layout.names)} here"
        )
    check_hashes(bank.base.fingerprint, bank.base.metadata, base_hashes(loaded), where=where)
    return check_entries(bank, name=name)


def check_entries(bank: GraftBank, *, name: str) -> GraftBank:
    """Refuse entries whose values are NaN or infinite; see `check_bank_model`."""
    entries = tuple(
        entry.check_when_read(partial(_check_values, name=f"{name}, task {entry.task!r}"))
        for entry in bank.entries
    )
    return replace(bank, entries=entries)


def check_hashes(
    fingerprint: str, recorded: Mapping[str, object], found: BaseHashes, *, where: str
) -> None:
    """Refuse a base that is not the recorded one: weights, tokenizer and config, where recorded."""
    if found.fingerprint == fingerprint:
        if other := describe_other_settings(recorded.get("config"), found.config):
            raise WrongBase(f"{where} the weights are the same, but its config is not: {other}")
        return
    tokenizer = recorded.get("tokenizer_sha256")
    if recorded.get("weights_sha256") == found.weights and tokenizer != found.tokenizer:
        raise WrongTokenizer(
            f"{where} the weights are the same, but its tokenizer has SHA-256 "
            f"{str(tokenizer)[:12]}…, this one has {found.tokenizer[:12]}…; token ids would stand "
            "for other text"
        )
    raise WrongBase(
        f"{where} its base has fingerprint {fingerprint[:12]}…, this model has "
        f"{found.fingerprint[:12]}…; other weights, another dtype or another tokenizer cause this"
    )


def check_answering(entry: Entry, loaded: Loaded, *, name: str) -> None:
    """Refuse an entry whose head or recorded batch does not fit the model, by `DamagedFile`."""
    with report_damage(name):
        check_head(entry.head, loaded.model)
        load_head(entry, family=loaded.model.family)
        recorded = entry.recorded_batch
        if recorded is not None and not recorded.logits.is_floating_point():
            raise ValueError(f"its recorded logits are {recorded.logits.dtype}")


def _check_values(entry: Entry, *, name: str) -> None:
    with report_damage(name):
        if not bool(entry.owned.values.isfinite().all()):
            raise ValueError("its values are NaN or infinite")
