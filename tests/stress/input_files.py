"""Kinds of files: encodings, archives, what is no file, and how large one may be."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
import zipfile
from pathlib import Path

from input_case import Case, Make, csv, document, jsonl, rows

__all__ = ["cases"]

GOOD = "text,label\n" + "".join(f"{row['text']},{row['label']}\n" for row in rows())
ACCENTS = GOOD + "un café à Noël,yes\n"


def cases() -> list[Case]:
    """Return all kinds of files."""
    return [*_encodings(), *_archives(), *_sizes(), *_parquet(), *_places()]


def _encodings() -> list[Case]:
    group = "encoding"

    def case(name: str, data: str | bytes, *says: str, file: str = "mine.csv", **more) -> Case:
        return Case(group, name, document(data, name=file), says, **more)

    def accepted(name: str, data: str | bytes, *arguments: str, says: str = "") -> Case:
        make = document(data, name="mine.csv")
        told = (rf"mine\.csv: not UTF-8, read as {says};",) if says else ()
        return Case(group, name, make, told, 0, arguments, data={"source.rows_read.train": 41})

    windows = ("--set", "stream.task_settings.mine.encoding=cp1252")
    utf16 = ("--set", "stream.task_settings.mine.encoding=utf-16")
    latin = '{"text": "café", "label": "yes"}\n'.encode("latin-1")
    return [
        case(
            "a Latin-1 row among UTF-8 rows",
            (ACCENTS * 2).encode() + ACCENTS.encode("latin-1"),
            r"mine\.csv:126: byte 0xe9 is not UTF-8",
        ),
        case(
            "a Latin-1 line among UTF-8 JSON lines",
            latin.decode("latin-1").encode() * 2 + latin,
            r"mine\.jsonl:3: byte 0xe9 is not UTF-8",
            file="mine.jsonl",
        ),
        accepted("Latin-1 table", ACCENTS.encode("latin-1"), says="cp1252"),
        accepted("UTF-16 with its mark", ACCENTS.encode("utf-16"), says="utf-16"),
        accepted("UTF-32 with its mark", ACCENTS.encode("utf-32"), says="utf-32"),
        accepted("UTF-16 without a mark", ACCENTS.encode("utf-16-le"), says="utf-16-le"),
        case("NUL byte in a row", GOOD + "a\0b,yes\n", r"mine\.csv:42: there is a NUL byte"),
        case(
            "NUL byte in JSON lines",
            '{"text": "a\0b", "label": "yes"}\n',
            r"mine\.jsonl:1: there is a NUL byte",
            file="mine.jsonl",
        ),
        case("random bytes", os.urandom(4096), r"mine\.csv"),
        case(
            "unknown encoding",
            GOOD,
            "unknown encoding 'utf9'; did you mean 'utf-8'",
            arguments=("--set", "stream.task_settings.mine.encoding=utf9"),
        ),
        case(
            "no encoding of text",
            GOOD,
            "unknown encoding 'base64'",
            arguments=("--set", "stream.task_settings.mine.encoding=base64"),
        ),
        case("another encoding than named", "text,label\nabc,1\n", r"mine\.csv", arguments=utf16),
        accepted("UTF-8 with its mark", "\ufeff" + GOOD + "a new text,yes\n"),
        accepted("Windows-1252, named", ACCENTS.encode("cp1252"), *windows),
        accepted("UTF-16, named", ACCENTS.encode("utf-16"), *utf16),
        accepted("lines that end in CR LF", ACCENTS.replace("\n", "\r\n")),
        accepted("lines that end in CR alone", ACCENTS.replace("\n", "\r")),
        accepted("no line end at the end", ACCENTS.rstrip("\n")),
    ]


def _archives() -> list[Case]:
    group = "archive or foreign file"
    packed = gzip.compress(GOOD.encode())
    wrong_sum = bytearray(packed)
    wrong_sum[-5] ^= 1

    def case(name: str, data: bytes, says: str, file: str = "mine.csv") -> Case:
        return Case(group, name, document(data, name=file), (rf"{file}: ", says))

    return [
        case("zip called csv", _zip(), "a zip archive"),
        case("gzip called csv", packed, "a gzip archive"),
        case("xz called csv", lzma.compress(GOOD.encode()), "an xz archive"),
        case("bzip2 called csv", bz2.compress(GOOD.encode()), "a bzip2 archive"),
        case("zstd called csv", b"\x28\xb5\x2f\xfd" + packed, "a zstd archive"),
        case("tar called csv", _tar(), "a tar archive"),
        case("tar inside gzip", gzip.compress(_tar()), "a tar archive", "mine.csv.gz"),
        case("parquet called csv", b"PAR1" + packed, "a parquet file"),
        case("PDF called csv", b"%PDF-1.7\n1 0 obj\n", "a PDF"),
        case("SQLite called csv", b"SQLite format 3\0" + bytes(100), "SQLite"),
        case("web page called csv", b"<!DOCTYPE html><html>Sign in", "a web page"),
        case("pointer of Git LFS", b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        case("gzip cut short", packed[: len(packed) // 2], "ends too early", "mine.csv.gz"),
        case("gzip with a wrong sum", bytes(wrong_sum), "not an intact gzip", "mine.csv.gz"),
        case("text called gz", GOOD.encode(), "not an intact gzip archive", "mine.csv.gz"),
        case("empty gzip file", b"", "empty", "mine.csv.gz"),
    ]


def _sizes() -> list[Case]:
    group = "size"
    small = ("--set", "stream.max_megabytes=1")
    line = b'{"text": "again and again and again", "label": "yes"}\n'

    def bomb(unit: bytes, megabytes: int, name: str) -> Make:
        """Pack so many MB into a file of kilobytes: members of gzip may follow one another."""
        part = unit * (10_000_000 // len(unit) + 1)
        return document(gzip.compress(part) * (megabytes // 10 + 1), name=name)

    too_large = (r"larger than 1 MB when unpacked", "raise max_megabytes")
    return [
        Case(group, "bomb of zeros", bomb(b"\0", 50, "mine.csv.gz"), too_large, 2, small),
        Case(group, "bomb of rows", bomb(line, 50, "mine.jsonl.gz"), too_large, 2, small),
        Case(
            group,
            "bomb against the default limit",
            bomb(b"\0", 8000, "mine.csv.gz"),
            (r"larger than 4,000 MB when unpacked",),
            full=True,
        ),
        Case(
            group,
            "large plain file",
            document(line * 40_000, name="mine.jsonl"),
            (r"mine\.jsonl: larger than 1 MB, the limit",),
            2,
            small,
        ),
        Case(
            group,
            "many tiny rows",
            document("{}\n" * 20_000, name="mine.jsonl"),
            ("more than 10,000 rows",),
            2,
            small,
        ),
        Case(
            group,
            "the limit raised",
            jsonl([{**row, "text": row["text"] + " x" * 20_000} for row in rows()]),
            (),
            0,
            ("--set", "stream.max_megabytes=2"),
            data={"cut.train": 8},
        ),
        Case(
            group,
            "a line of a million characters and more",
            csv(f"{'a' * 1_000_001},yes"),
            (r"mine\.csv:42: .*field larger than field limit \(1000000\)",),
        ),
        Case(
            group,
            "a text of a million characters and more",
            jsonl([*rows(), {"text": "ab " * 340_000, "label": "yes"}]),
            (r"mine\.jsonl:41: .* 1,020,000 characters, the limit is 1,000,000",),
        ),
    ]


def _parquet() -> list[Case]:
    group = "parquet"

    def table(columns: dict[str, list], name: str = "mine.parquet", cut: int | None = None) -> Make:
        def make(folder: Path) -> None:
            import pyarrow
            import pyarrow.parquet

            made = pyarrow.table(list(columns.values()), names=[c.strip("!") for c in columns])
            pyarrow.parquet.write_table(made, folder / name)
            data = (folder / name).read_bytes()
            (folder / name).write_bytes(data[:cut])

        return make

    texts, labels = [row["text"] for row in rows()], [row["label"] for row in rows()]
    plain = {"text": texts, "label": labels}
    return [
        Case(group, "truncated", table(plain, cut=-30), ("not an intact parquet file",)),
        Case(group, "cut to its head", table(plain, cut=4), ("not an intact parquet file",)),
        Case(group, "empty file", document(b"", name="mine.parquet"), ("not an intact parquet",)),
        Case(
            group,
            "text called parquet",
            document(GOOD, name="mine.parquet"),
            ("not an intact parquet file",),
        ),
        Case(
            group,
            "another schema",
            table({"user": texts, "remark": texts[::-1], "stars": labels}),
            (r"mine\.parquet: which column holds the text, user or remark\?",),
        ),
        Case(group, "no rows", table({"text": [], "label": []}), (r"mine\.parquet: .* no rows",)),
        Case(
            group,
            "two columns of one name",
            table({"text": texts, "text!": texts, "label": labels}),
            ("several columns called 'text'",),
        ),
        Case(
            group,
            "numbers as texts",
            table({"text": list(range(40)), "label": labels}),
            (r"mine\.parquet: row 1: column 'text' must hold text, got int",),
        ),
        Case(
            group,
            "bytes as texts",
            table({"text": [t.encode() for t in texts], "label": labels}),
            (r"mine\.parquet: row 1: column 'text' must hold text, got bytes",),
        ),
        Case(
            group,
            "lists as labels",
            table({"text": texts, "label": [[1]] * 40}),
            (r"task 'mine' needs two or more different label names, got \['1'\]",),
        ),
        Case(
            group,
            "missing value",
            table({"text": [*texts[:-1], None], "label": labels}),
            (r"mine\.parquet: row 40: column 'text' is empty",),
        ),
        Case(
            group,
            "bomb: one text many times",
            table({"text": ["a" * 10_000] * 5000, "label": ["x"] * 5000}),
            (r"mine\.parquet: larger than 1 MB when unpacked",),
            2,
            ("--set", "stream.max_megabytes=1"),
        ),
    ]


def _places() -> list[Case]:
    group = "files and folders"

    def saved(folder: Path) -> None:
        (folder / "mine").mkdir()
        (folder / "mine" / "dataset_dict.json").write_text('{"splits": ["train"]}')

    def unreadable(folder: Path) -> None:
        csv()(folder)
        (folder / "mine.csv").chmod(0o000)

    def doubled(folder: Path) -> None:
        csv(name="mine/train.csv")(folder)
        jsonl(name="mine/train.jsonl")(folder)

    def doubled_dev(folder: Path) -> None:
        csv(name="mine/train.csv")(folder)
        csv(name="mine/dev.csv")(folder)
        csv(name="mine/validation.csv")(folder)

    def meta(content: str) -> Make:
        def make(folder: Path) -> None:
            csv(name="mine/train.csv")(folder)
            (folder / "mine" / "meta.json").write_text(content)

        return make

    return [
        Case(
            group,
            "folder called as a file",
            lambda folder: (folder / "mine.csv").mkdir(),
            (r"mine\.csv: the folder has no train file",),
        ),
        Case(
            group,
            "folder in place of the train file",
            lambda folder: (folder / "mine" / "train.csv").mkdir(parents=True),
            (r"train\.csv: a folder, where a file is expected",),
        ),
        Case(
            group,
            "link in a circle",
            lambda folder: (folder / "mine.csv").symlink_to("mine.csv"),
            (r"mine\.csv: a link that leads nowhere, or in a circle",),
        ),
        Case(
            group,
            "link that leads nowhere",
            lambda folder: (folder / "mine.csv").symlink_to("gone.csv"),
            (r"mine\.csv: a link that leads nowhere",),
        ),
        Case(
            group,
            "file without the right to read it",
            unreadable,
            (r"mine\.csv: cannot be read \(Permission denied\)",),
            nobody=True,
        ),
        Case(
            group,
            "pipe called as a file",
            lambda folder: os.mkfifo(folder / "mine.csv"),
            (r"mine\.csv: neither a file nor a folder",),
        ),
        Case(group, "two train files", doubled, (r"both train\.csv and train\.jsonl",)),
        Case(group, "two dev files", doubled_dev, (r"both dev\.csv and validation\.csv are dev",)),
        Case(
            group,
            "folder without a train file",
            csv(name="mine/test.csv"),
            (r"mine: the folder has no train file",),
        ),
        Case(
            group,
            "train file of another kind",
            csv(name="mine/train.xlsx"),
            (r"no train file .*train\.xlsx: unknown kind of file; .* a spreadsheet: save its",),
        ),
        Case(group, "unknown kind", csv(name="mine.txt"), (r"mine\.txt: unknown kind of file",)),
        Case(
            group,
            "kind .json",
            csv(name="mine.json"),
            (r"mine\.json: unknown kind .*or one object a line",),
        ),
        Case(group, "nothing there", lambda folder: None, ("there is no data for task 'mine'",)),
        Case(
            group,
            "name of another task",
            csv(name="mines.csv"),
            ("there is no data for task 'mine'; did you mean 'mines'",),
        ),
        Case(
            group,
            "no folder of data",
            lambda folder: folder.rmdir(),
            (r"data: there is no such file or folder",),
        ),
        Case(group, "damaged data set", saved, ("a saved data set that cannot be read",)),
        Case(group, "broken meta.json", meta("{"), (r"meta\.json: not a readable JSON object",)),
        Case(group, "nested meta.json", meta("[" * 100_000), (r"meta\.json: not a readable JSON",)),
        Case(
            group,
            "meta.json with numbers as names",
            meta('{"label_names": [0, 1]}'),
            (r"meta\.json: label_names must be a list of texts",),
        ),
        Case(
            group,
            "meta.json with one name twice",
            meta('{"label_names": ["a", "a"]}'),
            ("two or more different label names are needed",),
        ),
    ]


def _zip() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("mine.csv", GOOD)
    return packed.getvalue()


def _tar() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        member = tarfile.TarInfo("mine.csv")
        member.size = len(GOOD)
        archive.addfile(member, io.BytesIO(GOOD.encode()))
    return packed.getvalue()
