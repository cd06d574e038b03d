"""The model card of a bank: its base, its tasks and their scores, and how to load it.

It is apart from `hub` because it is text only and calls nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from huggingface_hub import ModelCardData
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from cl_graft.grafts.bank import Entry, GraftBank
from cl_graft.runtime.escaping import for_markdown, for_markdown_code, for_python

_TAGS = ["grafting", "continual-learning", "sparse-fine-tuning"]


def model_card(bank: GraftBank, *, name: str, license: str | None = None) -> str:
    """Write the model card of a bank, with the metadata that the hub reads.

    Scores and calibration are those on dev rows, which the bank stores.

    Args:
        bank: The bank; others load its base by the name that it records.
        name: Name of the bank on the hub.
        license: Licence of the bank as the hub spells it, such as ``"apache-2.0"``; None writes
            that none is stated.
    """
    base, revision = bank.base, bank.base.metadata.get("revision")
    on_hub = is_hub_name(base.model)
    data = ModelCardData(
        base_model=base.model if on_hub else None,
        library_name="cl-graft",
        license=license,
        tags=_TAGS,
    )
    pinned = f" at revision {for_markdown_code(str(revision))}" if revision else ""
    unpinned = "" if revision or not on_hub else " (no revision recorded)"
    lines = [
        "---",
        data.to_yaml(),
        "---",
        "",
        f"# {for_markdown(name)}",
        "",
        f"{_count(len(bank), 'text task')} of one frozen language model, as grafts: each sets a "
        "small region of weights to its own values, and is answered with the bits that it was "
        "learned with ([Panigrahi et al., 2023](https://arxiv.org/abs/2302.06600)).",
        "",
        f"- **Base model:** {for_markdown_code(base.model)}{pinned}{unpinned}, {base.dtype}; "
        f"fingerprint {for_markdown_code(base.fingerprint)}, checked on loading",
        f"- **Mode:** {_describe_mode(bank)}",
        f"- **Coordinates:** {len(bank.owned()):,} of {bank.layout.total:,} graftable ones",
        f"- **Licence:** {for_markdown(license or 'not stated')}; that of the base model applies "
        "beside it",
        "",
        "## Tasks",
        "",
        "| task | labels | coordinates | density | dev | ECE, before and after calibration |",
        "| --- | --- | --- | --- | --- | --- |",
        *(_row(entry) for entry in bank.entries),
        *_what_tasks_build_on(bank),
        "",
        "Dev rows chose among the values of a training, and the temperature was fitted on them: "
        "scores on other rows may be lower.",
        "",
        "## How to load it",
        "",
        "```python",
        "from cl_graft import open_bank",
        *_opening(name),
        *_question(bank),
        "```",
        "",
    ]
    return "\n".join(lines)


def is_hub_name(name: str) -> bool:
    """Tell whether a name can be one on the hub: an owner and a name.

    Examples:
        >>> is_hub_name("someone/bank"), is_hub_name("runs/first/bank")
        (True, False)
    """
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return name.count("/") == 1


_MODES = {
    "prefix": "prefix; a task is answered by its graft and those of all tasks before it",
    "isolated": "isolated; a task is answered by its own graft alone",
}


def _describe_mode(bank: GraftBank) -> str:
    if all(entry.builds_on is None for entry in bank.entries):
        return _MODES[bank.mode]
    return "prefix; a task is answered by its graft and those of the tasks that it builds on"


def _what_tasks_build_on(bank: GraftBank) -> list[str]:
    """Say which tasks build on others, where these are not all before them."""
    if all(entry.builds_on is None for entry in bank.entries):
        return []
    lines = []
    for position, entry in enumerate(bank.entries):
        names = [for_markdown(bank.entries[place].task) for place in bank.builds_on(position)]
        lines.append(f"- {for_markdown(entry.task)} builds on {', '.join(names) or 'the base'}")
    return ["", *lines]


def _row(entry: Entry) -> str:
    metadata = entry.metadata
    names = metadata.get("label_names")
    labels = ", ".join(map(str, names)) or "a number" if isinstance(names, list) else "not recorded"
    cells = [
        entry.task,
        labels,
        f"{len(entry.owned):,}",
        f"{entry.density:.4%}",
        _score(metadata),
        _calibration(metadata.get("temperature")),
    ]
    return f"| {' | '.join(map(for_markdown, cells))} |"


def _score(metadata: Mapping[str, Any]) -> str:
    score = metadata.get("trained_dev")
    return f"{score:.3f} {metadata.get('metric', '')}".strip() if score is not None else "–"


def _calibration(found: object) -> str:
    if not isinstance(found, Mapping):
        return "–"
    before, after = 100 * found["ece_before"], 100 * found["ece_after"]
    return f"{before:.1f} → {after:.1f} points (temperature {found['value']:.3g})"


def _opening(name: str) -> list[str]:
    if not is_hub_name(name):
        return ["", 'bank = open_bank(".")  # the folder of this file']
    return [
        "from cl_graft.storage.hub import download_bank",
        "",
        f'bank = open_bank(download_bank({for_python(name)}))  # revision="…" pins a commit',
    ]


def _question(bank: GraftBank) -> list[str]:
    if not bank.entries:
        return []
    task, pair = bank.entries[0].task, bank.entries[0].metadata.get("pair")
    text = '("A text.", "Another.")' if pair else '"A text."'
    return [f"answer = bank.predict({text}, task={for_python(task)})"]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
