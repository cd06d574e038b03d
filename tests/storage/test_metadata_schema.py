"""Metadata that no bank of this package holds are refused and are not written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from stored_banks import LAYOUT, bank_of, base_identity, same_bank

from cl_graft.errors import DamagedFile
from cl_graft.grafts.bank import GraftBank
from cl_graft.models.heads import ACTIVATIONS, POOLINGS
from cl_graft.models.task_model import FAMILIES
from cl_graft.storage import load_bank, metadata_schema, save_bank
from cl_graft.training.precision import PRECISIONS

SHA = "0" * 64
BASE_METADATA: list[tuple[str, object]] = [
    ("family", "encoder\n# "),
    ("pooling", "max"),
    ("precision", "fp8"),
    ("trust_remote_code", "no"),
    ("max_length", 0),
    ("max_length", "128); import os; os.abort()  #"),
    ("seed", 2**70),
    ("weights_sha256", "x"),
    ("files", {"../../config.json": SHA}),
    ("files", {"config.json": "a" * 63}),
    ("revision", "\x1b[31mmain"),
    ("settings", "all"),
    ("settings", {"a\0": {}}),
    ("mine", "\ud800"),
]
ENTRY_METADATA: list[tuple[str, object]] = [
    ("label_names", "no, yes"),
    ("label_names", ["no", "no"]),
    ("label_names", ["no", "\u202eyes"]),
    ("label_names", ["no", "a" * 300]),
    ("kind", ["tagging"]),
    ("intent_names", ["meet", "meet"]),
    ("pair", "yes"),
    ("prompt", {"template": "{text} {mask}", "words": {"no": 1}}),
    ("prompt", {"template": "{text}\0{mask}", "words": {"no": "no"}}),
    ("max_length", True),
    ("max_length", float("nan")),
    ("settings", "x"),
    ("metric", "acc\x07"),
    ("localizer", ["difference"]),
    ("activation", "system"),
    ("trained_dev", "0.9"),
    ("temperature", {"value": 0.0, "rows": 1, "ece_before": 0.1, "ece_after": 0.1}),
    ("temperature", {"value": float("nan"), "rows": 1, "ece_before": 0.1, "ece_after": 0.1}),
    ("temperature", {"value": 1.0}),
]


@contextmanager
def unchecked() -> Iterator[None]:
    """Let everything pass, as whoever wrote a hostile file would."""
    with patch.object(metadata_schema, "_check", lambda *_: None):
        yield


def saved(folder: Path, bank: GraftBank) -> Path:
    with unchecked():
        save_bank(bank, folder)
        assert load_bank(folder).entries[0].task == bank.entries[0].task
    return folder


def of_base(**metadata: object) -> GraftBank:
    return replace(bank_of(tasks=1), base=replace(base_identity(), metadata=metadata))


def of_entry(**changes: Any) -> GraftBank:
    bank = bank_of(tasks=1)
    return replace(bank, entries=(replace(bank.entries[0], **changes),))


@pytest.mark.parametrize(("key", "value"), BASE_METADATA)
def test_metadata_of_a_base_that_none_has_are_refused(tmp_path, key, value):
    bank = of_base(**{key: value})
    with pytest.raises(DamagedFile, match="is damaged"):
        load_bank(saved(tmp_path, bank))
    with pytest.raises(ValueError, match=r"metadata|text|number"):
        save_bank(bank, tmp_path / "own")


@pytest.mark.parametrize(("key", "value"), ENTRY_METADATA)
def test_metadata_of_an_entry_that_none_has_are_refused(tmp_path, key, value):
    bank = of_entry(metadata={key: value})
    with pytest.raises(DamagedFile, match=key):
        load_bank(saved(tmp_path, bank))
    with pytest.raises(ValueError, match=key):
        save_bank(bank, tmp_path / "own")
    assert not (tmp_path / "own" / "bank.json").exists()


@pytest.mark.parametrize(
    "changes", [{"task": "a\x1b[2Jb"}, {"label": -1}, {"label": True}, {"weights_sha256": "abc"}]
)
def test_a_name_or_label_that_no_task_has_is_refused(tmp_path, changes):
    with pytest.raises(DamagedFile, match=next(iter(changes))):
        load_bank(saved(tmp_path, of_entry(**changes)))


@pytest.mark.parametrize(
    "changes",
    [{"fingerprint": ""}, {"model": "a\x1b]0;x\x07"}, {"dtype": "load"}, {"model": "a" * 5000}],
)
def test_an_identity_that_no_base_has_is_refused(tmp_path, changes):
    bank = bank_of(tasks=0)
    bank = replace(bank, base=replace(bank.base, **changes))
    with unchecked():
        save_bank(bank, tmp_path)
    with pytest.raises(DamagedFile, match=next(iter(changes))):
        load_bank(tmp_path)


@pytest.mark.parametrize("environment", [{"threads": "²"}, {"threads": "-1"}, {"device": "a\0"}])
def test_an_environment_that_no_machine_has_is_refused(tmp_path, environment):
    bank = bank_of(tasks=2)
    recorded_batch = replace(bank.entries[1].recorded_batch, environment=environment)
    entries = (bank.entries[0], replace(bank.entries[1], recorded_batch=recorded_batch))
    with pytest.raises(DamagedFile, match=next(iter(environment))):
        load_bank(saved(tmp_path, replace(bank, entries=entries)))


def test_a_parameter_of_a_layout_has_no_control_characters_in_its_name(tmp_path):
    bank = bank_of(tasks=0)
    save_bank(replace(bank, layout=replace(LAYOUT, names=("a\u202e", "b"))), tmp_path)
    with pytest.raises(DamagedFile, match=r"control characters, got 'a\\u202e'"):
        load_bank(tmp_path)


def test_unknown_metadata_are_kept_as_they_are(tmp_path):
    metadata = {
        "größe": [1.5, None, {"a": True}],
        "note": "line\nby line",
        "label_names": ["a", "b"],
    }
    bank = of_entry(metadata=metadata)
    save_bank(bank, tmp_path)
    assert same_bank(load_bank(tmp_path), bank)


@pytest.mark.parametrize("where", ["value", "key"])
def test_a_message_shows_no_control_characters(tmp_path, where):
    evil = "a\x1b[2J\u202eb"
    bank = of_entry(task=evil) if where == "value" else of_base(files={evil: SHA})
    with pytest.raises(DamagedFile) as caught:
        load_bank(saved(tmp_path, bank))
    assert str(caught.value).isprintable()


def test_the_schema_knows_every_family_pooling_precision_and_activation():
    base = {"fingerprint": SHA, "model": "m", "dtype": "float32"}
    names = {"family": FAMILIES, "pooling": POOLINGS, "precision": PRECISIONS}
    for key, known in names.items():
        for name in known:
            metadata_schema.check_metadata("base", {**base, "metadata": {key: name}})
    for name in ACTIVATIONS:
        task = {"task": "t", "metadata": {"activation": name}}
        metadata_schema.check_metadata("task", task)
