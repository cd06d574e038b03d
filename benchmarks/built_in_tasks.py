"""Draw the rows of the built-in tasks from their sources.

    python benchmarks/built_in_tasks.py SOURCES

SOURCES holds a clone of each repository that a task's ``meta.json`` names, called after its owner
and name with a plus sign between (``clinc+oos-eval``). Files are read at the commits there, and as
many rows are drawn. The same sources give the same bytes.

Classes are balanced. A row is left out if a row of any task before it has the same words, if a row
of another split has the same first text (without case, punctuation and white space in both cases),
or if it has more than 40 words.
"""

import csv
import io
import json
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from cl_graft.data import BUILT_IN

SEED = 0
MAX_WORDS = 40

Row = dict[str, str]
Read = Callable[[str], str]


def read_banking(read: Read) -> Mapping[str, list[Row]]:
    rows: dict[str, list[Row]] = {}
    for split in ("train", "test"):
        lines = csv.DictReader(io.StringIO(read(f"banking_data/{split}.csv")))
        rows[split] = [{"text": line["text"], "label": line["category"]} for line in lines]
    return rows


def read_topic(read: Read) -> Mapping[str, list[Row]]:
    data = json.loads(read("data/data_full.json"))
    domains = json.loads(read("data/domains.json"))
    domain_of = {intent: name for name, intents in domains.items() for intent in intents}
    return {
        split: [{"text": text, "label": domain_of[intent]} for text, intent in data[key]]
        for split, key in (("train", "train"), ("dev", "val"), ("test", "test"))
    }


def read_scope(read: Read) -> Mapping[str, list[Row]]:
    data = json.loads(read("data/data_oos_plus.json"))
    return {
        split: [
            {"text": text, "label": label}
            for key, label in ((name, "in_scope"), (f"oos_{name}", "out_of_scope"))
            for text, _ in data[key]
        ]
        for split, name in (("train", "train"), ("dev", "val"), ("test", "test"))
    }


def read_snli(read_sample: Read, read: Read) -> Mapping[str, list[Row]]:
    names = ("entailment", "neutral", "contradiction")
    rows: dict[str, list[Row]] = {"train": [], "dev": [], "test": []}
    for path in ("train", "dev"):  # both of SNLI's train split
        for row in json.loads(read_sample(f"data/glue_pretrain/SNLI/{path}.json")).values():
            pair = {"text": row["text_a"], "text_pair": row["text_b"]}
            rows["train"].append({**pair, "label": row["label"]})
    for split, path in (("dev", "validation"), ("test", "test")):
        text = io.StringIO(read(f"data/snli/{path}.tsv"))
        for row in csv.DictReader(text, delimiter="\t", quoting=csv.QUOTE_NONE):
            pair = {"text": row["premise"], "text_pair": row["hypothesis"]}
            rows[split].append({**pair, "label": names[int(row["label"])]})
    return rows


def read_xquad(read: Read) -> Mapping[str, list[Row]]:
    """Pair each question with the sentence that answers it or with another of its paragraph."""
    rows: dict[str, list[Row]] = {"train": [], "test": []}
    draw = random.Random(SEED)
    for number, article in enumerate(json.loads(read("xquad.en.json"))["data"]):
        split = rows["test" if number % 3 == 2 else "train"]
        for paragraph in article["paragraphs"]:
            sentences = list(split_sentences(paragraph["context"]))
            for question in paragraph["qas"]:
                answer, start = (question["answers"][0][key] for key in ("text", "answer_start"))
                right = next(s for begin, s in reversed(sentences) if begin <= start)
                wrong = [s for _, s in sentences if answer not in s]
                if answer not in right or not wrong:
                    continue
                answered = draw.random() < 0.5
                pair = right if answered else draw.choice(wrong)
                label = "answered" if answered else "not_answered"
                split.append({"text": question["question"], "text_pair": pair, "label": label})
    return rows


def split_sentences(text: str) -> Iterator[tuple[int, str]]:
    begin = 0
    for end in re.finditer(r"(?<=[a-z0-9)\]\"][.?!])\s+(?=[A-Z])", text):
        yield begin, text[begin : end.start()]
        begin = end.end()
    yield begin, text[begin:]


READERS: Mapping[str, Callable[..., Mapping[str, list[Row]]]] = {
    "entailment": read_snli,
    "scope": read_scope,
    "topic": read_topic,
    "banking": read_banking,
    "answered": read_xquad,
}
"""Readers of the sources; a row that two tasks could have is the first one's."""


def main(sources: Path) -> None:
    taken: set[str] = set()
    for name, reader in READERS.items():
        meta = json.loads((BUILT_IN[name] / "meta.json").read_text(encoding="utf-8"))
        reads = [open_source(sources, *each) for each in meta["repositories"].items()]
        for split, rows in choose(reader(*reads), meta, taken).items():
            lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            (BUILT_IN[name] / f"{split}.jsonl").write_bytes(lines.encode())


def open_source(sources: Path, address: str, commit: str) -> Read:
    """Return a function that reads a file of a repository at a commit."""
    clone = sources / "+".join(address.split("/")[-2:])

    def read(path: str) -> str:
        shown = ["git", "-C", str(clone), "show", f"{commit}:{path}"]
        return subprocess.run(shown, check=True, capture_output=True).stdout.decode()

    return read


def choose(
    rows: Mapping[str, list[Row]], meta: Mapping[str, Mapping[str, int]], taken: set[str]
) -> Mapping[str, Sequence[Row]]:
    """Draw each split's rows, test first; dev comes from the source's train where it has no dev."""
    first_texts: dict[str, str] = {}
    chosen: dict[str, list[Row]] = {}
    for split in ("test", "dev", "train"):
        chosen[split] = []
        for label in meta["label_names"]:
            candidates = [row for row in rows.get(split, rows["train"]) if row["label"] == label]
            random.Random(f"{SEED} {split} {label}").shuffle(candidates)
            missing = meta["rows"][split] // len(meta["label_names"])
            for row in candidates:
                row = {key: " ".join(text.split()) for key, text in row.items()}
                texts = [row[key] for key in ("text", "text_pair") if key in row]
                first, words = normalise(texts[0]), " | ".join(map(normalise, texts))
                elsewhere = first_texts.get(first, split) != split
                long = sum(len(text.split()) for text in texts) > MAX_WORDS
                if not missing or words in taken or elsewhere or long:
                    continue
                taken.add(words)
                first_texts[first] = split
                chosen[split].append(row)
                missing -= 1
            if missing:
                raise SystemExit(f"{label}: {missing} rows of {split} are missing")
        random.Random(f"{SEED} {split}").shuffle(chosen[split])
    return chosen


def normalise(text: str) -> str:
    return " ".join(re.sub(r"[^\w\s]", " ", text.lower()).split())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
