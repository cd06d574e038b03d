"""Text files are decoded, and cut into lines by any system's line ends."""

import pytest

from cl_graft.data.text_files import Reading, decode_lines, detect_encoding
from cl_graft.errors import InputError


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_lines_end_as_on_any_system_and_nowhere_else(ends):
    text = f"a\u2028b{ends}{ends}\x0bc\x85d{ends}last"
    lines = decode_lines(text.encode(), "a.csv")
    assert lines == [f"a\u2028b{ends}", ends, f"\x0bc\x85d{ends}", "last"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252"])
def test_a_named_encoding_gives_the_text_without_its_mark(encoding):
    assert decode_lines("café\n".encode(encoding), "a.csv", encoding) == ["café\n"]


def test_bytes_of_another_encoding_can_become_surrogates():
    assert decode_lines("a\ncafé".encode("latin-1"), "a.csv", escape=True) == ["a\n", "caf\udce9"]
    with pytest.raises(InputError, match=r"a\.csv:2: byte 0xe9 is not utf-8 \(offset 5\)"):
        decode_lines("a\ncafé".encode("latin-1"), "a.csv", "utf-8")


@pytest.mark.parametrize(
    ("text", "written", "found"),
    [
        ("Das Möbel war schön, die Tür aber nicht. " * 9, "latin-1", "cp1252"),
        ("L'été dernier nous étions à l'hôtel. Ça n'était pas très bon", "cp1252", "cp1252"),
        ("Zażółć gęślą jaźń, to był dobry film i bardzo zła obsługa", "cp1250", "cp1250"),
        ("plain", "ascii", "utf-8"),
        ("some text, with 漢", "utf-16-be", "utf-16-be"),
        ("some text", "utf-16", "utf-16"),
        ("Все хорошо, спасибо", "cp1251", "cp1251"),
        ("これは日本語の文です", "shift_jis", "cp932"),
        ("这部电影非常好看，服务太差了", "gb18030", "gb18030"),
    ],
)
def test_an_encoding_that_nobody_named_is_found(text, written, found):
    data = f"text,label\n{text},yes\n".encode(written)
    assert detect_encoding(data) == found
    assert "".join(decode_lines(data, "a.csv", found)) == f"text,label\n{text},yes\n"


def test_a_faulty_byte_in_a_file_of_utf8_does_not_make_it_another_encoding():
    assert detect_encoding("café, naïve, née ".encode() * 9 + b"\xe9") == "utf-8"
    far = b"a" * 300_000 + b"caf\xe9"
    assert detect_encoding(far) == "cp1252"


def test_an_unknown_encoding_is_refused():
    with pytest.raises(InputError, match="unknown encoding 'utf9'; did you mean 'utf-8'"):
        Reading(encoding="utf9")
