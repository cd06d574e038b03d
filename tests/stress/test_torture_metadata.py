"""Torture's part on hostile metadata runs, and a sample of it holds without the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import hostile_metadata
import pytest
import torture_metadata
from benchmark_scripts import run_script
from tiny_runs import tiny_run

from cl_graft.banks.inspect import inspect_bank, inspect_graft
from cl_graft.banks.open_bank import open_bank
from cl_graft.banks.verify import verify
from cl_graft.errors import BankError, InputError
from cl_graft.integrations import export_task
from cl_graft.storage import load_bank
from cl_graft.storage.hub import save_pretrained

CASES = {f"{case.group}: {case.name}": case for case in hostile_metadata.hostile_banks()}
_GROUPS = ("template", "label_names", "task", "base revision", "word")
_TEXTS = ("python", "fence", "script", "latex", "formula", "link")
WRITTEN = [
    name
    for name, case in CASES.items()
    if case.group in _GROUPS and case.name.removesuffix(", with fields") in _TEXTS
]
"""What an honest schema lets through, and a careless writer would write as code."""


@pytest.fixture(scope="module")
def bank(tiny_roberta: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("honest")
    return tiny_run(out, tiny_roberta, ["sentiment"], family="masked_lm") / "bank"


def exported(bank: Path, out: Path) -> str:
    export_task(bank, 0, format="safetensors-overlay", out=out)
    return (out / "README.md").read_text(encoding="utf-8")


def test_there_are_more_than_200_and_each_has_a_name_of_its_own():
    assert len(CASES) == len(list(hostile_metadata.hostile_banks())) > 200


def test_every_hostile_bank_is_read_as_text_or_refused_with_a_sentence(bank, tmp_path):
    honest, said = load_bank(bank), list[str]()
    for number, case in enumerate(CASES.values()):
        if number % 5:
            continue
        place = tmp_path / str(number)
        try:
            hostile_metadata.save_unchecked(case.change(honest), place)
        except (TypeError, ValueError, AttributeError):
            continue  # nobody can write that as a file
        try:
            inspect_bank(place)
            inspect_graft(place.with_suffix(".safetensors"))
        except BankError as error:
            said.append(str(error))
    assert len(said) > 100
    assert not torture_metadata.acting_in("".join(said))


@pytest.mark.parametrize("name", WRITTEN)
def test_no_text_of_a_bank_becomes_code_in_what_is_exported(bank, tmp_path, name):
    honest = load_bank(bank)
    hostile_metadata.save_unchecked(CASES[name].change(honest), tmp_path / "bank")
    allowed = torture_metadata.names_in(exported(bank, tmp_path / "honest"))
    save_pretrained(honest, tmp_path / "honest-card")
    card = (tmp_path / "honest-card" / "README.md").read_text(encoding="utf-8")
    try:
        made = exported(tmp_path / "bank", tmp_path / "out")
        save_pretrained(load_bank(tmp_path / "bank"), tmp_path / "card")
    except (BankError, InputError):
        assert not (tmp_path / "out").exists()
        return
    assert not list(torture_metadata.code_in(made, allowed, "README"))
    written = (tmp_path / "card" / "README.md").read_text(encoding="utf-8")
    assert not list(torture_metadata.code_in(written, torture_metadata.names_in(card), "card"))


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("tensors: ")])
def test_tensors_that_do_not_fit_the_model_are_refused_or_differ(bank, tmp_path, name):
    hostile_metadata.save_unchecked(CASES[name].change(load_bank(bank)), tmp_path / "bank")
    try:
        report = verify(tmp_path / "bank")
        open_bank(tmp_path / "bank").predict(["It was a delight."], task=0)
    except BankError:
        return
    assert not report.ok


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="children are forked")
def test_the_part_runs_and_nothing_hostile_comes_through(tmp_path):
    run_script("torture_metadata.py", "--scale", "smoke", "--out", tmp_path)
    found = json.loads((tmp_path / "metadata.json").read_text(encoding="utf-8"))
    assert all(row["survived"] == row["cases"] > 0 for row in found["rows"])
