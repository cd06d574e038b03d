"""Torture, part `metadata`: banks and results with fitting checksums and hostile metadata.

    python tests/stress/torture_metadata.py --scale smoke     # some cases: does it run?
    python tests/stress/torture_metadata.py --scale full      # all of them

Every hostile bank (see `hostile_metadata`) goes through inspect, verify, predict, export in every
format and the model card; every hostile result through report. Each command runs in a process of
its own and must answer, or end with one sentence: no traceback, no signal, no character that acts
on a terminal. What is written must hold no more code, tags or commands than that of an honest bank.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unicodedata import category

from hostile_metadata import MARK, hostile_banks, hostile_results, save_unchecked
from tiny_checkpoint import QUICK, tiny_checkpoint
from torture_children import Told, prepare, tell
from torture_report import Row, end_part, options

from cl_graft.errors import BankError, InputError
from cl_graft.grafts.bank import GraftBank
from cl_graft.settings import to_nested
from cl_graft.storage import load_bank
from cl_graft.storage.checksums import dump_with_checksum, load_with_checksum
from cl_graft.storage.hub import save_pretrained

EVERY = {"smoke": 67, "full": 3}
"""One of so many cases is done."""
SECONDS = 60.0
"""A command may take."""
FAMILIES = {"encoder": ["topic", "sentiment"], "masked_lm": ["sentiment"]}
"""The tasks that each learns."""
EXPORTS = ("hf", "safetensors-overlay", "peft-shira")
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PAPER = "(https://arxiv.org/abs/2302.06600)"
_SPAN = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")


@dataclass
class Found:
    """What came of the cases of a row."""

    what: str
    cases: int = 0
    refused: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def row(self) -> Row:
        failed = {failure.split(" → ")[0] for failure in self.failures}
        said = f"{self.refused:,} refused by every command, the others answered as text"
        return Row(self.what, self.cases, self.cases - len(failed), said, tuple(self.failures[:20]))


def main() -> None:
    given = options(__doc__ or "").parse_args()
    started = time.perf_counter()
    place = given.out.resolve() / "metadata"
    place.mkdir(parents=True, exist_ok=True)
    prepare()
    import cl_graft.integrations
    import cl_graft.lab.reporting  # noqa: F401

    model = tiny_checkpoint(place).resolve()
    runs = {family: learned(place, model, family) for family in FAMILIES}
    rows = [banks(runs[family], family, EVERY[given.scale]) for family in FAMILIES]
    rows.append(results(runs["encoder"], EVERY[given.scale]))
    seconds = time.perf_counter() - started
    end_part(given.out, "metadata", [row.row for row in rows], seconds, scale=given.scale)


def learned(place: Path, model: Path, family: str) -> Path:
    """Learn two tasks, if that was not done before; return the run."""
    run = place / family / "grafting" / "seed0"
    if not (run / "results.json").is_file():
        config = place / f"{family}.yaml"
        own = {
            "stream.tasks": FAMILIES[family],
            "model.name": str(model),
            "model.family": family,
        }
        config.write_text(json.dumps(to_nested({**QUICK, **own})))
        out = ("--out", place / family)
        told = tell("run", config, "--strategy", "grafting", *out)
        if told.code:
            raise RuntimeError(told.err)
    return run


def banks(run: Path, family: str, every: int) -> Found:
    """Let every command meet every hostile bank of a family."""
    honest = load_bank(run / "bank")
    found = Found(f"hostile banks of family {family}")
    with tempfile.TemporaryDirectory() as folder:
        clean = Looks(Path(folder) / "clean")
        save_unchecked(honest, clean.bank)
        allowed = {form: names_in(clean.readme(form)) for form in EXPORTS}
        allowed["card"] = names_in(clean.card())
        for number, case in enumerate(hostile_banks()):
            if number % every:
                continue
            name = f"{case.group}: {case.name}"
            bank = case.change(honest)
            looks = Looks(Path(folder) / str(number))
            try:
                save_unchecked(bank, looks.bank)
            except (TypeError, ValueError, AttributeError):
                continue  # nobody can write that as a file
            found.cases += 1
            faults = list(looks.faults(bank, allowed))
            found.failures += [f"{name} → {fault}" for fault in faults]
            found.refused += looks.answered == 0
            shutil.rmtree(looks.place)
    return found


class Looks:
    """The commands that look at one bank, in a folder of their own."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.bank = place / "bank"
        self.answered = 0
        self.last = Told(0, "", "")
        place.mkdir()

    def readme(self, form: str) -> str:
        """Export the bank's last task, and return its README; nothing if that is refused."""
        task = json.loads((self.bank / "bank.json").read_bytes())["entries"][-1]["task"]
        out, rest = self.place / form, ("--rest", "copy")
        told = self.told("export", self.bank, "--task", task, "--out", out, "--format", form, *rest)
        return self.written(told, out)

    def card(self) -> str:
        """Write the bank's card, and return it; nothing if that is refused."""
        out = self.place / "card"
        return self.written(self.ended(write_card(self.bank, out)), out)

    def told(self, *words: object) -> Told:
        """Run a command here."""
        return self.ended(tell(*words))

    def ended(self, told: Told) -> Told:
        """Remember how a command ended."""
        self.answered += told.code == 0
        self.last = told
        return told

    def written(self, told: Told, out: Path) -> str:
        """Return the README that a command wrote."""
        path = out / "README.md"
        return path.read_text(encoding="utf-8") if told.code == 0 and path.is_file() else ""

    def faults(self, bank: GraftBank, allowed: dict[str, set[str]]) -> Iterator[str]:
        """Run all commands, and say what is wrong."""
        task = str(bank.entries[-1].task)
        asked: list[Sequence[object]] = [
            ("inspect", self.bank),
            ("inspect", self.bank, "--json"),
            ("inspect", self.bank.with_suffix(".safetensors")),
            ("verify", self.bank),
            ("predict", self.bank, "It was a delight. " * 40, "--task", task),
            ("predict", self.bank, "It was a delight.", "--task", task, "--json"),
        ]
        if "\0" in task or "\ud800" in task:
            asked = asked[:4]  # no such word can be typed
        for words in asked:
            yield from faults_of(words, self.told(*words))
        for form in EXPORTS if len(asked) > 4 else ():
            text = self.readme(form)
            yield from faults_of(("export", form), self.last)
            yield from code_in(text, allowed[form], f"README of {form}")
        text = self.card()
        yield from faults_of(("card",), self.last)
        yield from code_in(text, allowed["card"], "card")
        made = {path.name for path in self.place.iterdir()}
        if strange := made - {"bank", "bank.safetensors", "card", *EXPORTS}:
            yield f"wrote {sorted(strange)}"


def write_card(bank: Path, out: Path) -> Told:
    """Write a bank's card in a child, which ends as the command line would."""

    def write() -> None:
        code = 1
        try:
            save_pretrained(load_bank(bank), out)
            code = 0
        except (BankError, InputError) as error:
            sys.stderr.write(f"cl-graft: {error}\n")
            code = 2
        except BaseException:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(code)

    return tell(first=write)


def faults_of(words: Sequence[object], told: Told) -> Iterator[str]:
    """Say what is wrong with how a command ended."""
    name = " ".join(str(word)[:20] for word in (words[0], *words[2:3]))
    if told.code not in (0, 1, 2) or (told.code == 1 and words[0] != "verify"):
        yield f"{name} ended with {told.code}: {told.err[-200:]!r}"
    if "Traceback" in told.err:
        yield f"{name} ended in a traceback: {told.err[-200:]!r}"
    if told.code == 2 and "cl-graft: " not in told.err:
        yield f"{name} gave no sentence: {told.err[-200:]!r}"
    if acting := acting_in(told.out + told.err):
        yield f"{name} wrote {acting} to the terminal"


def acting_in(text: str) -> set[str]:
    """Return the characters that act on a terminal."""
    acting = {c for c in text if category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")} - {"\n", "\t"}
    return {f"U+{ord(c):04X}" for c in acting}


def names_in(readme: str) -> set[str]:
    """Return every name that the Python in a README uses."""
    code = "\n".join(_BLOCK.findall(readme))
    nodes = list(ast.walk(ast.parse(code)))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return names | {node.name for node in nodes if isinstance(node, ast.alias)}


def code_in(text: str, allowed: set[str], what: str) -> Iterator[str]:
    """Say what in a README would be read as more than text."""
    if not text:
        return
    if acting := acting_in(text):
        yield f"{what} holds {acting}"
    try:
        more = names_in(text) - allowed - _OTHERWISE
    except SyntaxError as error:
        yield f"{what} holds no Python: {error}"
        return
    if more:
        yield f"{what} holds code that uses {sorted(more)}"
    if len(re.findall("^```", text, re.MULTILINE)) != 2:
        yield f"{what} has another number of code blocks"
    prose = _SPAN.sub("", _BLOCK.sub("", text))
    if re.search(r"<[a-zA-Z/!]", prose):
        yield f"{what} holds a tag"
    if re.search(r"(?<!\\)\]\([^)]*\)", prose.replace(_PAPER, "")):
        yield f"{what} holds a link"
    if any(MARK in line for line in re.findall("^#.*", prose, re.MULTILINE)[1:]):
        yield f"{what} has a heading of its own"


_OTHERWISE = {"tanh", "relu", "gelu", "AutoModelForSequenceClassification", "logits"}
"""Names that the code of honest banks uses where they have another head."""


def results(run: Path, every: int) -> Found:
    """Let the report meet every hostile result."""
    found = Found("forged results, reported")
    with tempfile.TemporaryDirectory() as folder:
        clean = tags_of(reported(run, Path(folder) / "clean", lambda values: None)[1])
        for number, case in enumerate(hostile_results()):
            if number % every:
                continue
            place = Path(folder) / str(number)
            try:
                told, page = reported(run, place, case.change)
            except ValueError:
                continue  # nobody can write that as a file
            found.cases += 1
            found.refused += told.code != 0
            faults = [*faults_of(("report",), told), *written_by(page, clean)]
            found.failures += [f"{case.name} → {fault}" for fault in faults]
            shutil.rmtree(place)
    return found


def reported(
    run: Path, place: Path, change: Callable[[dict[str, Any]], object]
) -> tuple[Told, Path]:
    """Write a run with other results, and report on it."""
    copied = shutil.copytree(run, place / "grafting" / "seed0")
    values = load_with_checksum((copied / "results.json").read_bytes(), name="results")
    change(values)
    (copied / "results.json").write_bytes(dump_with_checksum(values))
    return tell("report", copied, "--out", place / "page"), place / "page"


def tags_of(page: Path) -> set[tuple[str, str]]:
    """Return the tags of a report's page, each with every attribute it has."""
    found: set[tuple[str, str]] = set()

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.update((tag, name) for name, _ in [*attrs, ("", None)])

    if (page / "report.html").is_file():
        Reader().feed((page / "report.html").read_text(encoding="utf-8"))
    return found


def written_by(page: Path, clean: set[tuple[str, str]]) -> Iterator[str]:
    """Say what in the files of a report would be read as more than text."""
    if more := tags_of(page) - clean:
        yield f"the page holds {sorted(more)}"
    for path in page.rglob("*"):
        if path.suffix in (".html", ".tex", ".svg"):
            text = path.read_text(encoding="utf-8")
            if acting := acting_in(text) - {"U+00AD"}:
                yield f"{path.name} holds {acting}"
            if path.suffix == ".tex" and "\\input" in text:
                yield f"{path.name} holds a command"


if __name__ == "__main__":
    main()
