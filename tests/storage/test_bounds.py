"""What a file may hold at most is read and written, and one more is refused."""

from __future__ import annotations

import pytest
import torch
from stored_banks import LAYOUT, bank_of, base_identity, sample

from cl_graft.errors import DamagedFile, ForeignFile
from cl_graft.grafts.graft import Graft
from cl_graft.storage import StoredGraft, load_bank, load_graft, save_bank, save_graft
from cl_graft.storage.metadata_schema import check_metadata
from cl_graft.storage.serialization import read_layout, read_recorded_batch


@pytest.mark.parametrize(
    ("length", "said"), [(2**24, "is altered"), (2**24 + 1, "its header cannot be read")]
)
def test_a_header_takes_16_mib_at_most(tmp_path, length, said):
    path = tmp_path / "graft.safetensors"
    graft = Graft(sample(LAYOUT, 9, 0), torch.ones(9))
    save_graft(StoredGraft(graft, base_identity(), "qnli"), path)
    whole = path.read_bytes()
    end = 8 + int.from_bytes(whole[:8], "little")
    header = whole[8:end].ljust(length)
    path.write_bytes(length.to_bytes(8, "little") + header + whole[end:])
    with pytest.raises(DamagedFile, match=said):
        load_graft(path)


def test_a_bank_json_takes_64_mib_at_most(tmp_path):
    save_bank(bank_of(tasks=1), tmp_path)
    path = tmp_path / "bank.json"
    path.write_bytes(path.read_bytes().ljust(2**26))
    with pytest.raises(DamagedFile, match="does not match its checksum"):
        load_bank(tmp_path)
    with path.open("ab") as file:
        file.write(b" ")
    with pytest.raises(ForeignFile, match="it has 67108865 bytes"):
        load_bank(tmp_path)


def test_a_name_has_200_characters_at_most():
    check_metadata("task", {"task": "a" * 200, "metadata": {"label_names": ["b" * 200]}})
    with pytest.raises(ValueError, match="task"):
        check_metadata("task", {"task": "a" * 201, "metadata": {}})
    with pytest.raises(ValueError, match="label_names"):
        check_metadata("task", {"task": "a", "metadata": {"label_names": ["b" * 201]}})


def test_padding_unfolds_a_recorded_batch_to_two_to_the_23_numbers_at_most():
    tensors = {
        "recorded.tokens": torch.ones(2, 3, dtype=torch.int32),
        "recorded.segments": torch.ones(2, 3, dtype=torch.uint8),
        "recorded.logits": torch.zeros(2, 2),
    }
    record = {"environment": {}, "padding": 0, "width": 2**21}
    assert read_recorded_batch(record, tensors).inputs.numel() == 2**23
    with pytest.raises(ValueError, match="3 columns cannot be padded to 2097153"):
        read_recorded_batch({**record, "width": 2**21 + 1}, tensors)


def test_a_layout_has_two_to_the_62_places_at_most():
    whole = {"names": ["a"], "shapes": [[2**31, 2**31]]}
    assert read_layout(whole).total == 2**62
    with pytest.raises(ValueError, match="a layout of parameters must have 1 to"):
        read_layout({"names": ["a", "b"], "shapes": [*whole["shapes"], [1]]})
