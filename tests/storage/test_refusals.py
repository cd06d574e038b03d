"""Files that do not belong, or are not whole, are refused, each with its own error."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from stored_banks import LAYOUT, bank_of, base_identity, entry_of, sample

from cl_graft.errors import (
    BankError,
    DamagedFile,
    ForeignFile,
    FutureVersion,
    InputError,
    TruncatedFile,
    WrongArchitecture,
    WrongBase,
)
from cl_graft.grafts.bank import GraftBank
from cl_graft.grafts.graft import Graft
from cl_graft.grafts.region import Layout
from cl_graft.storage import StoredGraft, load_bank, load_graft, save_bank, save_graft
from cl_graft.storage.elias_fano import pack_indices
from cl_graft.storage.files import add_checksum, pack, replace_file


def _rewrite_index(folder: Path, **changes: object) -> None:
    """Change `bank.json` and seal it again, as only a program could."""
    index = json.loads((folder / "bank.json").read_text())
    del index["checksum"]
    (folder / "bank.json").write_bytes(add_checksum(json.dumps(index | changes, indent=1)))


def test_logits_of_a_recorded_batch_are_of_a_type_that_models_answer_in(tmp_path):
    bank = bank_of(tasks=2)
    batch = bank.entries[1].recorded_batch
    assert batch is not None
    odd = replace(batch, logits=batch.logits.to(torch.float8_e4m3fn))
    entries = (bank.entries[0], replace(bank.entries[1], recorded_batch=odd))
    save_bank(replace(bank, entries=entries), tmp_path)
    with pytest.raises(DamagedFile, match=r"logits of its recorded batch are of torch\.float8"):
        load_bank(tmp_path)


def test_a_bank_of_another_base_model_is_refused(tmp_path):
    save_bank(bank_of(), tmp_path)
    with pytest.raises(
        WrongBase, match=r"'org/model' has fingerprint aaaaaaaaaaaa….* bbbbbbbbbbbb…"
    ):
        load_bank(tmp_path, expect="b" * 64, layout=LAYOUT)


@pytest.mark.parametrize(
    ("names", "shapes", "reason"),
    [
        (("block.weight", "block.bias"), ((30, 40), (50,)), r"has shape \(40, 30\) there and \(30"),
        (("block.weight", "other"), ((40, 30), (50,)), r"block\.bias .* does not exist here"),
        (("block.bias", "block.weight"), ((50,), (40, 30)), "names or their order differ"),
        ((*LAYOUT.names, "more"), (*LAYOUT.shapes, (1,)), "this model has 3 parameters with 1251"),
    ],
)
def test_a_bank_of_another_architecture_is_refused(tmp_path, names, shapes, reason):
    save_bank(bank_of(), tmp_path)
    with pytest.raises(WrongArchitecture, match=reason):
        load_bank(tmp_path, layout=Layout(names, shapes))


def _graft_file(folder: Path) -> Path:
    path = folder / "graft.safetensors"
    save_graft(
        StoredGraft(Graft(sample(LAYOUT, 9, 0), torch.ones(9)), base_identity(), "qnli"), path
    )
    return path


def test_a_graft_file_cut_short_anywhere_is_refused_as_damaged(tmp_path):
    path = _graft_file(tmp_path)
    whole = path.read_bytes()
    for length in [*range(0, len(whole), 7), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(TruncatedFile, match="cut short"):
            load_graft(path)


def test_a_graft_file_with_any_bit_flipped_is_refused(tmp_path):
    path = _graft_file(tmp_path)
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1 << (place % 8)
        path.write_bytes(changed)
        with pytest.raises(DamagedFile if place >= header else BankError):
            load_graft(path)


@pytest.mark.parametrize("kind", ["entries", "standalone"])
def test_an_entry_file_that_is_cut_altered_replaced_or_gone_is_refused(tmp_path, kind):
    save_bank(bank_of(), tmp_path)
    (path,) = tmp_path.glob(f"{kind}/*-ag_news.safetensors")
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    with pytest.raises(TruncatedFile, match=r"-ag_news\.safetensors is cut short: \d+ of \d+"):
        load_bank(tmp_path)
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(DamagedFile, match="does not match its checksum"):
        load_bank(tmp_path)
    path.write_bytes(whole + bytes(1000))
    with pytest.raises(DamagedFile, match="1000 bytes follow its end"):
        load_bank(tmp_path)
    save_bank(bank_of(torch.bfloat16), tmp_path / "other")
    (other,) = (tmp_path / "other").glob(f"{kind}/*-ag_news.safetensors")
    path.write_bytes(other.read_bytes())
    with pytest.raises(DamagedFile, match="another file than the one that is listed"):
        load_bank(tmp_path)
    path.write_bytes(b"nothing of ours")
    with pytest.raises(DamagedFile, match="is not a file of cl_graft"):
        load_bank(tmp_path)
    path.unlink()
    with pytest.raises(DamagedFile, match=r"bank\.json lists it; .* cl-graft forget .* 1$"):
        load_bank(tmp_path)


def test_files_of_others_are_refused_as_foreign(tmp_path):
    path = tmp_path / "file"
    torch.save({"a": torch.zeros(3)}, path)
    with pytest.raises(ForeignFile, match="not a file of cl_graft"):
        load_graft(path)
    for metadata in [None, {"format": "pt"}]:
        save_file({"a": torch.zeros(3)}, path, metadata=metadata)
        with pytest.raises(ForeignFile, match="expected a cl-graft-graft file"):
            load_graft(path)
    path.write_text("just some text that is no graft")
    with pytest.raises(ForeignFile, match="not a file of cl_graft"):
        load_graft(path)
    save_bank(bank_of(), tmp_path / "bank")
    with pytest.raises(ForeignFile, match="its format is 'cl-graft-entry'"):
        load_graft(next((tmp_path / "bank" / "entries").glob("*-qnli.safetensors")))


def test_folders_of_others_are_refused_as_foreign(tmp_path):
    with pytest.raises(ForeignFile, match=r"not a bank: it holds no bank\.json"):
        load_bank(tmp_path)
    for text in ["no json", "[]", "{}", '{"format": "theirs"}', "[" * 100_000]:
        (tmp_path / "bank.json").write_text(text)
        with pytest.raises(ForeignFile):
            load_bank(tmp_path)


def test_what_does_not_exist_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="there is no bank folder"):
        load_bank(tmp_path / "gone")
    with pytest.raises(InputError, match="there is no graft file"):
        load_graft(tmp_path / "gone")


def test_files_of_another_version_are_refused_as_such(tmp_path, monkeypatch):
    with monkeypatch.context() as newer:
        newer.setattr("cl_graft.storage.files.VERSION", 2)
        newer.setattr("cl_graft.storage.bank_folder.VERSION", 2)
        save_bank(bank_of(), tmp_path / "bank")
        path = _graft_file(tmp_path)
    with pytest.raises(FutureVersion, match=r"has version 2 of its format, .* reads version 1"):
        load_bank(tmp_path / "bank")
    with pytest.raises(FutureVersion, match="another version of cl_graft wrote it"):
        load_graft(path)


def test_an_index_that_points_outside_the_folder_is_refused(tmp_path):
    save_bank(bank_of(tasks=1), tmp_path)
    entry = json.loads((tmp_path / "bank.json").read_text())["entries"][0]
    for file in ("../outside.safetensors", "/etc/passwd", "entries/../x", "a"):
        _rewrite_index(tmp_path, entries=[{**entry, "file": file}])
        with pytest.raises(DamagedFile, match="is no entry file's name"):
            load_bank(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"mode": "both"},
        {"entries": [7]},
        {"entries": [{"file": "entries/000-qnli.safetensors"}]},
        {"base": {}},
        {"layout": {"names": ["a"], "shapes": [[-3]]}},
        {"layout": {"names": ["a", "a"], "shapes": [[3], [3]]}},
        {"layout": {"names": ["a"], "shapes": [3]}},
        {"layout": {"names": [], "shapes": []}},
    ],
)
def test_an_index_with_impossible_content_is_refused(tmp_path, changes):
    save_bank(bank_of(tasks=1), tmp_path)
    _rewrite_index(tmp_path, **changes)
    with pytest.raises(DamagedFile, match=r"bank\.json"):
        load_bank(tmp_path)


def test_entries_of_one_bank_do_not_pass_in_another(tmp_path):
    bank = bank_of(tasks=1)
    save_bank(bank, tmp_path)
    listed = json.loads((tmp_path / "bank.json").read_text())
    _rewrite_index(tmp_path, base={**listed["base"], "fingerprint": "b" * 64})
    with pytest.raises(WrongBase, match="another base model than its bank"):
        load_bank(tmp_path)
    swapped = {"names": ["block.weight", "block.bias"], "shapes": [[30, 40], [50]]}
    _rewrite_index(tmp_path, base=listed["base"], layout=swapped)
    with pytest.raises(WrongArchitecture, match="another architecture than its bank"):
        load_bank(tmp_path)


def test_values_in_another_dtype_than_the_base_states_are_refused(tmp_path):
    save_bank(bank_of(tasks=1), tmp_path)
    base = json.loads((tmp_path / "bank.json").read_text())["base"]
    _rewrite_index(tmp_path, base={**base, "dtype": "bfloat16"})
    with pytest.raises(DamagedFile, match="'qnli' must be bfloat16"):
        load_bank(tmp_path)


@pytest.mark.parametrize(("key", "value"), [("task", "other"), ("size", 99), ("owned", 1)])
def test_an_index_that_contradicts_an_entry_is_refused(tmp_path, key, value):
    save_bank(bank_of(tasks=1), tmp_path)
    entry = json.loads((tmp_path / "bank.json").read_text())["entries"][0]
    _rewrite_index(tmp_path, entries=[{**entry, key: value}])
    with pytest.raises(DamagedFile, match=r"entries/[0-9a-f]{16}-qnli.* (is damaged|owns \d)"):
        load_bank(tmp_path)


def test_a_coordinate_listed_for_two_owners_is_refused(tmp_path):
    claimed = sample(LAYOUT, 20, 0)
    bank = GraftBank(LAYOUT, base_identity(), "isolated")
    bank = bank.append(entry_of(bank, claimed))
    bank = bank.append(entry_of(bank, claimed, task="again"))
    save_bank(bank, tmp_path)
    _rewrite_index(tmp_path, mode="prefix")
    with pytest.raises(DamagedFile, match="20 of 'again' are taken already"):
        load_bank(tmp_path)


@pytest.mark.parametrize("count", [8, 10, 10**18, -1, "9"])
def test_a_graft_with_a_false_count_is_refused(tmp_path, count):
    region = sample(LAYOUT, 9, 0)
    content = {
        "task": "qnli",
        "count": count,
        "base": {"fingerprint": "a", "model": "m", "dtype": "float32", "metadata": {}},
        "layout": {"names": list(LAYOUT.names), "shapes": [list(s) for s in LAYOUT.shapes]},
        "metadata": {},
    }
    index = pack_indices(region.index, total=LAYOUT.total)
    tensors = {"graft.index": index, "graft.values": torch.ones(9)}
    path = tmp_path / "graft.safetensors"
    replace_file(path, pack(tensors, {**content, "count": 9}, format="cl-graft-graft"))
    assert load_graft(path).graft.region == region
    replace_file(path, pack(tensors, content, format="cl-graft-graft"))
    with pytest.raises(DamagedFile, match=r"coordinates|count must be int"):
        load_graft(path)


def test_a_file_is_not_read_beyond_its_header_where_its_size_is_not_the_declared(tmp_path):
    """Sparse files of a terabyte: reading them would take all memory."""
    path = _graft_file(tmp_path)
    save_bank(bank_of(tasks=1), tmp_path / "bank")
    places = [path, *(tmp_path / "bank").rglob("*.safetensors"), tmp_path / "bank" / "bank.json"]
    for place in [*places, tmp_path / "foreign"]:
        with place.open("ab") as file:
            file.truncate(2**40)
        with pytest.raises(BankError):
            load_graft(place)
        if place in places[1:]:
            with pytest.raises(BankError):
                load_bank(tmp_path / "bank")


def test_metadata_larger_than_any_header_are_not_written(tmp_path):
    metadata = {"texts": ["a" * 2**16] * 2**8}
    stored = StoredGraft(
        Graft(sample(LAYOUT, 9, 0), torch.ones(9)), base_identity(), "x", {}, metadata
    )
    with pytest.raises(ValueError, match="fit in no file"):
        save_graft(stored, tmp_path / "graft.safetensors")
    assert not list(tmp_path.iterdir())
