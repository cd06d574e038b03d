"""The model card of a bank: its base, its tasks and their scores, and how to load it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from huggingface_hub import ModelCardData
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from cl_graft.grafts.bank import Entry, GraftBank
from cl_graft.runtime.escaping import for_markdown, for_markdown_code

_TAGS = ["grafting", "continual-learning", "sparse-fine-tuning"]


def model_card(bank: GraftBank, *, name: str, license: str | None = None) -> str:
    """Write the model card of a bank that is called `name` on the hub, with the hub's metadata."""
    base, revision = bank.base, bank.base.metadata.get("revision")
    on_hub = is_hub_name(base.model)
    data = ModelCardData(
        base_model=base.model if on_hub else None,
        library_name="cl-graft",
        license=license,
        tags=_TAGS,
    )
    pinned = "" if revision or not on_hub else " (no revision recorded)"
    if revision:
        pinned = f" at revision {for_markdown_code(str(revision))}"
    rows = "\n".join([*map(_row, bank.entries), *_what_tasks_build_on(bank)])
    return f"""---
{data.to_yaml()}
---

# {for_markdown(name)}

{len(bank)} text task{"" if len(bank) == 1 else "s"} of one frozen language model, as grafts: each \
sets a small region of weights to its own values, and is answered with the bits that it was \
learned with ([Panigrahi et al., 2023](https://arxiv.org/abs/2302.06600)).

- **Base model:** {for_markdown_code(base.model)}{pinned}, {base.dtype}; \
fingerprint {for_markdown_code(base.fingerprint)}, checked on loading
- **Mode:** {_describe_mode(bank)}
- **Coordinates:** {len(bank.owned()):,} of {bank.layout.total:,} graftable ones
- **Licence:** {for_markdown(license or "not stated")}; that of the base model applies beside it

## Tasks

| task | labels | coordinates | density | dev | ECE, before and after calibration |
| --- | --- | --- | --- | --- | --- |
{rows}

Dev rows chose among the values of a training, and the temperature was fitted on them: scores on \
other rows may be lower.

## How to load it

```python
from cl_graft import open_bank
{_show_use(bank, name)}
```
"""


def is_hub_name(name: str) -> bool:
    """Tell whether a name can be one on the hub: an owner and a name."""
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return name.count("/") == 1


def _describe_mode(bank: GraftBank) -> str:
    if bank.mode == "isolated":
        return "isolated; a task is answered by its own graft alone"
    others = "all tasks before it" if bank.builds_by_mode else "the tasks that it builds on"
    return f"prefix; a task is answered by its graft and those of {others}"


def _what_tasks_build_on(bank: GraftBank) -> list[str]:
    """Say which tasks build on others, where these are not all before them."""
    if bank.builds_by_mode:
        return []
    lines = []
    for position, entry in enumerate(bank.entries):
        names = [for_markdown(bank.entries[place].task) for place in bank.builds_on(position)]
        lines.append(f"- {for_markdown(entry.task)} builds on {', '.join(names) or 'the base'}")
    return ["", *lines]


def _row(entry: Entry) -> str:
    metadata: Mapping[str, Any] = entry.metadata
    names = metadata.get("label_names")
    labels = ", ".join(map(str, names)) or "a number" if isinstance(names, list) else "not recorded"
    score, scaling, calibration = metadata.get("trained_dev"), metadata.get("temperature"), "–"
    if isinstance(scaling, Mapping):
        before, after = 100 * scaling["ece_before"], 100 * scaling["ece_after"]
        calibration = f"{before:.1f} → {after:.1f} points (temperature {scaling['value']:.3g})"
    cells = [
        entry.task,
        labels,
        f"{len(entry.owned):,}",
        f"{entry.density:.4%}",
        f"{score:.3f} {metadata.get('metric', '')}".strip() if score is not None else "–",
        calibration,
    ]
    return f"| {' | '.join(map(for_markdown, cells))} |"


def _show_use(bank: GraftBank, name: str) -> str:
    """Return the lines of Python that open the bank and ask its first task."""
    lines = ["", 'bank = open_bank(".")  # the folder of this file']
    if is_hub_name(name):
        lines = [
            "from cl_graft.storage.hub import download_bank",
            "",
            f'bank = open_bank(download_bank({name!r}))  # revision="…" pins a commit',
        ]
    if bank.entries:
        text = '("A text.", "Another.")' if bank.entries[0].metadata.get("pair") else '"A text."'
        lines.append(f"answer = bank.predict({text}, task={bank.entries[0].task!r})")
    return "\n".join(lines)
