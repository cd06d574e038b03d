"""A file with a checksum notices every change of its bytes, and says so."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cl_graft.errors import BankError, DamagedFile, ForeignFile, FutureVersion, TruncatedFile
from cl_graft.storage import files
from cl_graft.storage.files import dump_json, load_json

VALUES = {"shots": 8, "name": "größe", "nested": {"checksum": "0" * 64}}
WHOLE = dump_json(VALUES, format="cl-graft-some")


def read(data: bytes) -> dict[str, object]:
    return load_json(data, format="cl-graft-some", name="it")


def test_json_with_a_checksum_is_read_back_and_is_plain_json_for_others():
    assert read(WHOLE) == VALUES
    head = {"format": "cl-graft-some", "version": 1}
    plain = json.loads(WHOLE)
    assert list(plain)[:3] == ["checksum", *head]
    assert plain == {"checksum": plain["checksum"], **head, **VALUES}


def test_the_checksum_is_that_of_the_file_with_zeros_in_its_place():
    digits = json.loads(WHOLE)["checksum"]
    assert WHOLE.startswith(b'{"checksum": "' + digits.encode())
    blank = WHOLE.replace(digits.encode(), b"0" * 64, 1)
    assert hashlib.sha256(blank).hexdigest() == digits
    rest = {key: value for key, value in json.loads(WHOLE).items() if key != "checksum"}
    with pytest.raises(DamagedFile, match="does not match its checksum"):
        read(json.dumps(rest).encode())


def test_every_single_bit_flip_is_noticed():
    for bit in range(8 * len(WHOLE)):
        changed = bytearray(WHOLE)
        changed[bit // 8] ^= 1 << (bit % 8)
        with pytest.raises(BankError):
            read(bytes(changed))


def test_a_file_cut_short_anywhere_is_refused():
    for length in range(len(WHOLE.rstrip())):
        with pytest.raises(
            DamagedFile if WHOLE[:length].rstrip().endswith(b"}") else TruncatedFile
        ):
            read(WHOLE[:length])


@given(st.binary(max_size=200))
def test_any_other_bytes_are_refused(data):
    with pytest.raises(BankError):
        read(data)


def test_another_format_and_another_version_are_told_as_such(monkeypatch):
    with pytest.raises(ForeignFile, match="is not a cl-graft-some file: its format is 'other'"):
        read(dump_json(VALUES, format="other"))
    with pytest.raises(ForeignFile, match="its format is None"):
        read(b'{"shots": 8}')
    with monkeypatch.context() as newer:
        newer.setattr(files, "VERSION", 2)
        later = dump_json(VALUES, format="cl-graft-some")
    with pytest.raises(FutureVersion, match="version 2 of its format, this package reads version"):
        read(later)
