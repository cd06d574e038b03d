"""Banks and results whose checksums fit and whose metadata nobody honest would write.

A case is a function from an honest bank (or the values of `results.json`) to a hostile one. Banks
are saved by the package itself with its schema switched off, so that their checksums fit, as if an
author with a text editor and a SHA-256 had written them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from cl_graft.grafts.bank import Entry, GraftBank, RecordedBatch
from cl_graft.grafts.graft import Graft
from cl_graft.storage import StoredGraft, metadata_schema, save_bank, save_graft

__all__ = [
    "MARK",
    "HostileBank",
    "HostileResults",
    "hostile_banks",
    "hostile_results",
    "save_unchecked",
]

MARK = "PWNED"
"""Stands in every text that would do something if it were taken for code."""

_CODE = f'128); __import__("os").system("touch {MARK}")  #'
TEXTS: dict[str, str] = {
    "python": _CODE,
    "python in quotes": f'"); __import__("os").system("touch {MARK}"); ("',
    "python in single quotes": f"'); __import__('os').system('touch {MARK}'); ('",
    "python behind a line": f'x"\n__import__("os").system("touch {MARK}")\n"',
    "backslash": f'\\"); {MARK}()  #',
    "fence": f"```\n{MARK}()\n```python",
    "span": f"`{MARK}` <b>x</b>",
    "link": f"[{MARK}](javascript:alert(1))",
    "picture": f"![{MARK}](https://example.org/x.png)",
    "heading": f"a\n# {MARK}\n",
    "script": f"<script>alert('{MARK}')</script>",
    "attribute": f'"><img src=x onerror="{MARK}()">',
    "template": f"{{{{ {MARK} }}}}{{% for x in y %}}",
    "latex": f"\\input{{/etc/{MARK}}}",
    "formula": "$\\frac{1}{$ x",
    "yaml": f"!!python/object/apply:os.system ['touch {MARK}']",
    "parent": f"../../{MARK}",
    "absolute": f"/tmp/{MARK}",
    "escape": "\x1b[31mred\x1b[2J",
    "title": f"\x1b]0;{MARK}\x07",
    "c1": "\x9b31mred",
    "turned": "\u202egnp.exe",
    "isolated": "\u2066a\u2069",
    "zero width": "a\u200bb\ufeff",
    "line": "a\u2028b",
    "nul": "a\0b",
    "half": "a\ud800b",
    "long": "a" * 5000,
    "longer": "a" * 300_000,
    "empty": "",
}
NUMBERS: dict[str, Any] = {
    "minus one": -1, "zero": 0, "large": 2**31, "larger": 2**63, "largest": 10**30,
    "fraction": 0.5, "nan": float("nan"), "infinite": float("inf"), "minus infinite": -float("inf"),
    "huge": 1e308, "digits": "1000000", "true": True,
}  # fmt: skip
SHAPES: dict[str, Any] = {
    "list": [1, "a"], "object": {"a": 1}, "no list": [], "no object": {}, "none": None,
}  # fmt: skip
PLACES: dict[str, Any] = {
    **{name: (value,) for name, value in (NUMBERS | SHAPES).items()},
    "code": (_CODE,), "twice": (0, 0), "backward": (1, 0), "many": tuple(range(100_000)),
}  # fmt: skip
DEEP: dict[str, Any] = {"deep": None}
for _ in range(60):
    DEEP = {"deep": DEEP}

_NAMES = ("family", "pooling", "precision", "revision", "weights_sha256", "tokenizer_sha256")
_ENTRY_NAMES = ("metric", "localizer", "activation", "data_fingerprint", "imported", "mine")
_FEW = ("python", "fence", "script", "latex", "escape", "turned", "half", "long")


@dataclass(frozen=True)
class HostileBank:
    """A case.

    Attributes:
        group: What is hostile in it.
        name: Which value it has.
        change: Makes the hostile bank of an honest one.
    """

    group: str
    name: str
    change: Callable[[GraftBank], GraftBank]


@dataclass(frozen=True)
class HostileResults:
    """A case.

    Attributes:
        name: What is hostile.
        change: Changes the values of a run's `results.json` in place.
    """

    name: str
    change: Callable[[dict[str, Any]], object]


def save_unchecked(bank: GraftBank, folder: Path) -> None:
    """Write a bank, and its last entry as a graft file, whatever their metadata say."""
    with patch.object(metadata_schema, "_check", lambda *_: None):
        save_bank(bank, folder)
        entry = bank.entries[-1]
        stored = StoredGraft(entry.owned, bank.base, entry.task, entry.head, entry.metadata)
        save_graft(stored, folder.with_suffix(".safetensors"))


def hostile_banks() -> Iterator[HostileBank]:
    """Yield all cases, those of a group behind each other."""
    few = {name: TEXTS[name] for name in _FEW}
    for key in _NAMES:
        yield from _each(f"base {key}", TEXTS | SHAPES | {"nan": NUMBERS["nan"]}, _change_base(key))
    for key in ("max_length", "seed", "trust_remote_code"):
        yield from _each(f"base {key}", few | NUMBERS | SHAPES, _change_base(key))
    for key in ("files", "settings", "mine"):
        yield from _each(f"base {key}", few | SHAPES | DEEP, _change_base(key))
    yield from _each("base file", TEXTS, lambda b, t: _base(b, metadata={"files": {t: "0" * 64}}))
    yield from _each("setting", few, lambda b, t: _base(b, metadata={"settings": {t: t}}))
    yield from _each("setting max_length", few | NUMBERS, lambda b, v: _setting(b, "max_length", v))
    for key in ("fingerprint", "model", "dtype"):
        yield from _each(f"base {key}", TEXTS, lambda b, t, key=key: _base(b, **{key: t}))
    yield from _each("task", TEXTS, lambda b, t: _entry(b, task=t))
    yield from _each("label", NUMBERS, lambda b, v: _entry(b, label=v))
    yield from _each("weights_sha256", few, lambda b, t: _entry(b, weights_sha256=t))
    yield from _each("builds_on", PLACES, lambda b, v: _entry(b, builds_on=v))
    for key in _ENTRY_NAMES:
        yield from _each(f"entry {key}", few | SHAPES | DEEP, _change_entry(key))
    for key in ("max_length", "pair", "trained_dev", "rows"):
        yield from _each(f"entry {key}", few | NUMBERS | SHAPES, _change_entry(key))
    yield from _each("label_names", TEXTS, lambda b, t: _with(b, label_names=[t, "b"]))
    yield from _each(
        "label_names", NUMBERS | SHAPES, lambda b, v: _with(b, label_names=v if v else [v, v])
    )
    yield from _each(
        "label_names", {"three": list("abc"), "many": ["x"] * 9}, _change_entry("label_names")
    )
    around = {f"{name}, with fields": f"{{text}} {text} {{mask}}" for name, text in TEXTS.items()}
    yield from _each("template", around | TEXTS, lambda b, t: _prompted(b, template=t))
    yield from _each("word", few, lambda b, t: _prompted(b, words={"negative": t, "positive": "x"}))
    yield from _each("prompt", SHAPES | few, _change_entry("prompt"))
    for key in ("value", "rows", "ece_before"):
        yield from _each(f"temperature {key}", NUMBERS | few, _temperature(key))
    yield from _each("temperature", SHAPES, _change_entry("temperature"))
    for key in ("threads", "device", "torch", "mine"):
        yield from _each(f"environment {key}", NUMBERS | few, _environment(key))
    yield from _tensors()


def hostile_results() -> Iterator[HostileResults]:
    """Yield results of runs that nobody measured."""
    for name in (*_FEW, "attribute", "link", "formula", "parent", "template"):
        text = TEXTS[name]
        yield HostileResults(f"strategy: {name}", lambda r, t=text: r.update(strategy=t))
        yield HostileResults(f"metric: {name}", lambda r, t=text: _scored_by(r, t))
        yield HostileResults(f"task: {name}", lambda r, t=text: _renamed(r, t))
        yield HostileResults(f"model: {name}", lambda r, t=text: r["model"].update(name=t))
        yield HostileResults(f"command: {name}", lambda r, t=text: r.update(command=t))
        yield HostileResults(f"version: {name}", lambda r, t=text: r["versions"].update(torch=t))


def _each(
    group: str, values: dict[str, Any], change: Callable[[GraftBank, Any], GraftBank]
) -> Iterator[HostileBank]:
    for name, value in values.items():
        yield HostileBank(group, name, lambda bank, value=value: change(bank, value))


def _base(bank: GraftBank, **changes: Any) -> GraftBank:
    metadata = {**bank.base.metadata, **changes.pop("metadata", {})}
    return replace(bank, base=replace(bank.base, metadata=metadata, **changes))


def _change_base(key: str) -> Callable[[GraftBank, Any], GraftBank]:
    return lambda bank, value: _base(bank, metadata={key: value})


def _setting(bank: GraftBank, key: str, value: object) -> GraftBank:
    settings: Any = bank.base.metadata["settings"]
    return _base(bank, metadata={"settings": {**settings, key: value}})


def _entry(bank: GraftBank, **changes: Any) -> GraftBank:
    """Change the last entry."""
    last: Entry = replace(bank.entries[-1], **changes)
    return replace(bank, entries=(*bank.entries[:-1], last))


def _with(bank: GraftBank, **metadata: object) -> GraftBank:
    return _entry(bank, metadata={**bank.entries[-1].metadata, **metadata})


def _change_entry(key: str) -> Callable[[GraftBank, Any], GraftBank]:
    return lambda bank, value: _with(bank, **{key: value})


def _prompted(bank: GraftBank, **changes: Any) -> GraftBank:
    words = {"negative": "terrible", "positive": "great"}
    return _with(bank, prompt={"template": "{text} It was {mask}.", "words": words, **changes})


def _temperature(key: str) -> Callable[[GraftBank, Any], GraftBank]:
    good = {"value": 1.5, "rows": 9, "ece_before": 0.25, "ece_after": 0.125}
    return lambda bank, value: _with(bank, temperature={**good, key: value})


def _environment(key: str) -> Callable[[GraftBank, Any], GraftBank]:
    def change(bank: GraftBank, value: Any) -> GraftBank:
        environment = {**_recorded_batch(bank).environment, key: value}
        return _entry(bank, recorded_batch=replace(_recorded_batch(bank), environment=environment))

    return change


def _recorded_batch(bank: GraftBank) -> RecordedBatch:
    recorded_batch = bank.entries[-1].recorded_batch
    if recorded_batch is None:
        raise ValueError("the honest bank has no recorded batch")
    return recorded_batch


def _tensors() -> Iterator[HostileBank]:
    """Yield banks whose tensors do not fit what they say."""

    def head(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[GraftBank], GraftBank]:
        return lambda b: _entry(b, head={n: change(t) for n, t in b.entries[-1].head.items()})

    def recorded_batch(**changes: Callable[[torch.Tensor], torch.Tensor]) -> Any:
        def change(bank: GraftBank) -> GraftBank:
            kept = _recorded_batch(bank)
            new = {name: make(getattr(kept, name)) for name, make in changes.items()}
            return _entry(bank, recorded_batch=replace(kept, **new))

        return change

    def nothing(bank: GraftBank) -> GraftBank:
        owned = bank.entries[-1].owned
        return _entry(bank, owned=Graft(owned.region, owned.values * float("nan")))

    yield HostileBank("tensors", "values NaN", nothing)
    yield HostileBank("tensors", "head empty", lambda b: _entry(b, head={}))
    yield HostileBank("tensors", "head NaN", head(lambda t: (t.float() * float("nan")).to(t.dtype)))
    yield HostileBank("tensors", "head flat", head(lambda t: t.reshape(-1)[:1]))
    yield HostileBank("tensors", "head huge", head(lambda t: t + 2**40))
    yield HostileBank("tensors", "head negative", head(lambda t: -t - 1))
    yield HostileBank("tensors", "batch beyond", recorded_batch(inputs=lambda t: t + 10**6))
    yield HostileBank("tensors", "batch empty", recorded_batch(inputs=lambda t: t[:0]))
    yield HostileBank("tensors", "batch of floats", recorded_batch(inputs=lambda t: t.float()))
    yield HostileBank("tensors", "batch long", recorded_batch(inputs=lambda t: t.repeat(1, 1, 50)))
    yield HostileBank("tensors", "logits NaN", recorded_batch(logits=lambda t: t * float("nan")))
    yield HostileBank("tensors", "logits flat", recorded_batch(logits=lambda t: t.reshape(-1)))
    yield HostileBank("tensors", "logits whole", recorded_batch(logits=lambda t: t.long()))


def _scored_by(results: dict[str, Any], metric: str) -> None:
    """Score the last task by another metric."""
    results["metrics"][results["tasks"][-1]] = metric


def _renamed(results: dict[str, Any], name: str) -> None:
    """Call the last task otherwise, wherever it stands."""
    old = results["tasks"][-1]
    for value in results.values():
        if isinstance(value, dict) and old in value:
            value[name] = copy.deepcopy(value.pop(old))
    results["tasks"][-1] = name
