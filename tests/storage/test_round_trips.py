"""Banks and grafts come back from disk bit for bit, and in no more bytes than promised."""

from __future__ import annotations

import re

import pytest
import torch
from stored_banks import (
    DTYPES,
    LAYOUT,
    bank_of,
    bank_of_one,
    base_identity,
    content,
    entry_of,
    same_bank,
    same_tensor,
    sample,
    text_batch,
    transformer_layout,
    values,
)

from cl_graft.grafts.bank import GraftBank, RecordedBatch
from cl_graft.grafts.graft import Graft
from cl_graft.storage import StoredGraft, append_entry, load_bank, load_graft, save_bank, save_graft
from cl_graft.storage.files import checksum_in


@pytest.mark.parametrize("mode", ["prefix", "isolated"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_bank_comes_back_bit_for_bit(tmp_path, dtype, mode):
    bank = bank_of(dtype, mode)
    save_bank(bank, tmp_path / "bank")
    assert same_bank(load_bank(tmp_path / "bank"), bank)
    loaded = load_bank(tmp_path / "bank", expect=bank.base.fingerprint, layout=LAYOUT)
    assert same_bank(loaded, bank)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_graft_comes_back_bit_for_bit(tmp_path, dtype):
    graft, head = Graft(sample(LAYOUT, 70, 0), values(70, dtype, 0)), {"bias": values(5, dtype, 1)}
    stored = StoredGraft(graft, base_identity(dtype), "qnli", head, {"k": [1]})
    save_graft(stored, tmp_path / "graft.safetensors")
    loaded = load_graft(tmp_path / "graft.safetensors", expect="a" * 64, layout=LAYOUT)
    assert loaded.graft.same_bits(graft)
    assert (loaded.base, loaded.task, loaded.metadata) == (stored.base, "qnli", {"k": [1]})
    assert same_tensor(loaded.head["bias"], stored.head["bias"])


@pytest.mark.parametrize(
    "inputs",
    [
        text_batch(4, 16),
        text_batch(3, 9, ids=128_256, pad=128_001),
        text_batch(2, 8, pad=1),
        torch.zeros(2, 2, 5, dtype=torch.int64),
        torch.tensor([[[7, 8, 9], [1, 0, 0]]]),
        torch.tensor([[[7, -8], [1, 1]]]),
        torch.tensor([[[7, 2**40], [1, 1]]]),
        torch.tensor([[[7, 8], [1, 300]]]),
        torch.empty(0, 2, 5, dtype=torch.int64),
        torch.empty(2, 2, 0, dtype=torch.int64),
        torch.randn(3, 4),
        torch.randn(2, 2, 5).to(torch.float16),
        torch.tensor([3, 1], dtype=torch.int32),
    ],
)
def test_recorded_batches_of_any_kind_come_back_exactly(tmp_path, inputs):
    recorded_batch = RecordedBatch(inputs, torch.randn(2, 3), {"threads": "2"})
    bank = bank_of_one(recorded_batch=recorded_batch)
    save_bank(bank, tmp_path)
    assert same_bank(load_bank(tmp_path), bank)


def test_heads_that_share_memory_or_are_views_come_back(tmp_path):
    weight = torch.randn(4, 3)
    head = {"a": weight, "b": weight, "c": weight.T, "d": weight[1:2], "empty": torch.empty(0, 3)}
    save_bank(bank_of_one(head=head), tmp_path)
    loaded = load_bank(tmp_path).entries[0].head
    assert all(same_tensor(loaded[name], head[name].contiguous()) for name in head)


def test_entries_without_coordinates_and_banks_without_entries_come_back(tmp_path):
    empty = GraftBank(LAYOUT, base_identity())
    save_bank(empty, tmp_path)
    assert same_bank(load_bank(tmp_path), empty)
    claimed = sample(LAYOUT, 20, 0)
    bank = empty.append(entry_of(empty, claimed))
    bank = bank.append(entry_of(bank, claimed, task="again"))
    assert len(bank.entries[1].owned) == 0
    save_bank(bank, tmp_path)
    assert same_bank(load_bank(tmp_path), bank)


def test_a_bank_file_holds_nothing_but_json_and_safetensors(tmp_path):
    save_bank(bank_of(), tmp_path)
    found = content(tmp_path)
    names = [name.replace(checksum_in(found[name])[:16], "#") for name in sorted(found)]
    assert sorted(names) == [
        "bank.json",
        "entries/#-ag_news.safetensors",
        "entries/#-qnli.safetensors",
        "entries/#-sst2.safetensors",
        "standalone/#-ag_news.safetensors",
    ]


@pytest.mark.parametrize(
    "task", ["../../etc/passwd", "/abs", "a b/c\\d", "..", "größe", "x" * 200, "CON", " . "]
)
def test_no_task_name_leaves_the_folder_and_every_name_comes_back(tmp_path, task):
    folder = tmp_path / "deep" / "bank"
    save_bank(bank_of_one(task=task), folder)
    assert load_bank(folder).entries[0].task == task
    assert sorted(p.name for p in tmp_path.iterdir()) == ["deep"]
    (path,) = folder.rglob("*.safetensors")
    assert path.parent == folder / "entries"
    assert re.fullmatch(r"[0-9a-f]{16}-[A-Za-z0-9._-]{1,64}\.safetensors", path.name)


@pytest.mark.parametrize("task", ["", "x" * 300, "a\nb\0c", "a\u202egnp.exe", "\ud800"])
def test_a_task_name_that_would_not_be_read_is_not_written(tmp_path, task):
    with pytest.raises(ValueError, match="character"):
        save_bank(bank_of_one(task=task), tmp_path / "deep" / "bank")
    assert not list(tmp_path.rglob("*.safetensors"))


@pytest.mark.parametrize(
    ("blocks", "hidden", "inner", "total", "count"),
    [(12, 768, 3072, 85_054_464, 8_505), (6, 384, 1536, 10_646_784, 32_000)],
)
def test_a_bank_costs_at_most_8_bytes_a_coordinate_and_8_kilobytes_a_task(
    tmp_path, blocks, hidden, inner, total, count
):
    layout = transformer_layout(blocks, hidden, inner)
    assert layout.total == total
    bank = GraftBank(layout, base_identity())
    heads = 0
    for number, task in enumerate(["qnli", "ag_news", "sst2"]):
        head = {"weight": torch.randn(4, hidden), "bias": torch.randn(4)}
        heads += sum(4 * tensor.numel() for tensor in head.values())
        rows = text_batch(8, 128, ids=50_265)
        more = {"recorded_batch": RecordedBatch(rows, torch.randn(8, 4), {"threads": "2"})}
        claimed = sample(layout, count, number)
        bank = bank.append(entry_of(bank, claimed, task=task, head=head, **more))
        append_entry(bank, tmp_path)
    found = content(tmp_path)
    assert same_bank(load_bank(tmp_path), bank)
    owned = sum(len(entry.owned) for entry in bank.entries)
    assert sum(map(len, found.values())) <= 8 * owned + heads + 3 * 8192
