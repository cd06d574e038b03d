"""A sealed file notices every change of its bytes, and says so."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cl_graft.errors import DamagedFile
from cl_graft.storage.checksums import BLANK, JSON_START, read_sealed, sealed_json

VALUES = {"format": "some", "shots": 8, "name": "größe", "nested": {"checksum": "0" * 64}}
WHOLE = sealed_json(VALUES)


def test_what_was_sealed_is_read_back_and_is_plain_json_for_others() -> None:
    assert read_sealed(WHOLE, name="it") == VALUES
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
            read_sealed(bytes(changed), name="it")


def test_a_sealed_file_cut_short_anywhere_is_refused() -> None:
    for length in range(len(WHOLE)):
        with pytest.raises(DamagedFile if length > 13 else ValueError):
            read_sealed(WHOLE[:length], name="it")


@given(st.binary(max_size=200))
def test_any_other_bytes_are_refused_or_are_an_object_without_a_seal(data: bytes) -> None:
    try:
        values = read_sealed(data, name="it")
    except ValueError:
        return
    assert values == json.loads(data)
    assert not {"checksum", "format"} & set(values)


def test_an_object_from_before_there_were_seals_is_read_as_it_is() -> None:
    assert read_sealed(b'{"shots": 8}', name="it") == {"shots": 8}


def test_a_sealed_file_without_its_checksum_is_damaged() -> None:
    rest = {key: value for key, value in json.loads(WHOLE).items() if key != "checksum"}
    with pytest.raises(DamagedFile, match="does not match its checksum"):
        read_sealed(json.dumps(rest).encode(), name="it")
