"""A file with a checksum notices every change of its bytes, and says so."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cl_graft.errors import DamagedFile
from cl_graft.storage.checksums import BLANK, JSON_START, dump_with_checksum, load_with_checksum

VALUES = {"format": "some", "shots": 8, "name": "größe", "nested": {"checksum": "0" * 64}}
WHOLE = dump_with_checksum(VALUES)


def test_json_with_a_checksum_is_read_back_and_is_plain_json_for_others() -> None:
    assert load_with_checksum(WHOLE, name="it") == VALUES
    assert next(iter(json.loads(WHOLE))) == "checksum"


def test_the_checksum_is_that_of_the_file_with_zeros_in_its_place() -> None:
    digits = json.loads(WHOLE)["checksum"]
    assert WHOLE.startswith(JSON_START + digits.encode())
    blank = WHOLE.replace(digits.encode(), BLANK.encode(), 1)
    assert hashlib.sha256(blank).hexdigest() == digits


def test_every_single_bit_flip_is_noticed() -> None:
    for bit in range(8 * len(WHOLE)):
        changed = bytearray(WHOLE)
        changed[bit // 8] ^= 1 << (bit % 8)
        with pytest.raises(DamagedFile):
            load_with_checksum(bytes(changed), name="it")


def test_a_file_cut_short_anywhere_is_refused() -> None:
    for length in range(len(WHOLE)):
        with pytest.raises(DamagedFile if length > 13 else ValueError):
            load_with_checksum(WHOLE[:length], name="it")


@given(st.binary(max_size=200))
def test_any_other_bytes_are_refused_or_are_an_object_without_a_checksum(data: bytes) -> None:
    try:
        values = load_with_checksum(data, name="it")
    except ValueError:
        return
    assert values == json.loads(data)
    assert not {"checksum", "format"} & set(values)


def test_an_object_from_before_there_were_checksums_is_read_as_it_is() -> None:
    assert load_with_checksum(b'{"shots": 8}', name="it") == {"shots": 8}


def test_a_file_that_lost_its_checksum_is_damaged() -> None:
    rest = {key: value for key, value in json.loads(WHOLE).items() if key != "checksum"}
    with pytest.raises(DamagedFile, match="does not match its checksum"):
        load_with_checksum(json.dumps(rest).encode(), name="it")
