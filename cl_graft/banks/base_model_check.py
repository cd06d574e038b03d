"""The check that a loaded model is the one a bank was made with: weights, config, tokenizer, heads.

`grafts/base_weights_check.py` compares the weights alone, of a model in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from cl_graft.errors import WrongBase, WrongTokenizer
from cl_graft.grafts.bank import Entry, GraftBank
from cl_graft.grafts.region import Layout
from cl_graft.models import Loaded, check_head, graftable_parameters, load_head
from cl_graft.models.answering_config import describe_other_settings
from cl_graft.settings.bank_metadata import BaseHashes, base_hashes
from cl_graft.storage.files import report_damage
from cl_graft.storage.serialization import check_layout


def check_bank_model(bank: GraftBank, loaded: Loaded, *, name: str) -> GraftBank:
    """Refuse a model that a bank was not made on, or cannot be answered with.

    Entries that were not read are checked when they are, so go on with the bank that is returned.
    """
    where = f"{name} belongs to another model than {loaded.name!r}:"
    check_layout(bank.layout, Layout.of(graftable_parameters(loaded.model)), name=name)
    check_hashes(bank.base.fingerprint, bank.base.metadata, base_hashes(loaded), where=where)
    return check_entries(bank, name=name)


def check_hashes(
    fingerprint: str, recorded: Mapping[str, object], hashes: BaseHashes, *, where: str
) -> None:
    """Refuse a base that is not the recorded one: weights, tokenizer and config, where recorded."""
    if hashes.fingerprint == fingerprint:
        if other := describe_other_settings(recorded.get("config"), hashes.config):
            raise WrongBase(f"{where} the weights are the same, but its config is not: {other}")
        return
    tokenizer = recorded.get("tokenizer_sha256")
    if recorded.get("weights_sha256") == hashes.weights and tokenizer != hashes.tokenizer:
        raise WrongTokenizer(
            f"{where} the weights are the same, but its tokenizer has SHA-256 "
            f"{str(tokenizer)[:12]}…, this one has {hashes.tokenizer[:12]}…; token ids would stand "
            "for other text"
        )
    raise WrongBase(
        f"{where} its base has fingerprint {fingerprint[:12]}…, this model has "
        f"{hashes.fingerprint[:12]}…; other weights, another dtype or another tokenizer cause this"
    )


def check_entries(bank: GraftBank, *, name: str) -> GraftBank:
    """Refuse entries whose values are NaN or infinite; see `check_bank_model`."""
    entries = tuple(
        entry.check_when_read(partial(_check_values, name=f"{name}, task {entry.task!r}"))
        for entry in bank.entries
    )
    return replace(bank, entries=entries)


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
