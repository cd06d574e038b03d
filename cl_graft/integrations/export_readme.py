"""The README of an exported task: what it is, and the lines that load it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cl_graft.integrations.loading_code import loading_code
from cl_graft.runtime.escaping import for_markdown, for_markdown_code

__all__ = ["manual"]


def manual(record: Mapping[str, Any], *, form: str) -> str:
    """Write the README of an export.

    Args:
        record: What `task.json` holds.
        form: The format.
    """
    base, names = record["base"], record.get("label_names") or []
    pinned = f" (revision {for_markdown(base['revision'])})" if "revision" in base else ""
    shown = ", ".join(map(for_markdown_code, names))
    lines = [
        f"# {for_markdown(record['task'])}",
        "",
        f"One task of a bank of grafts, written by {record['written_by']}. Its graft sets "
        f"{record['coordinates']:,} weights ({record['density']:.4%} of those that can be grafted) "
        f"of {for_markdown_code(base['model'])}{pinned} and leaves every other as it was.",
        "",
        f"- Labels, in the order of the logits: {shown or 'a number'}.",
        f"- Texts: {'pairs' if record.get('pair') else 'single'}; at most "
        f"{record.get('max_length', 128)} tokens.",
    ]
    if "prompt" in record:
        lines.append(f"- Prompt: {for_markdown_code(record['prompt']['template'])}.")
    if temperature := record.get("temperature"):
        lines.append(
            f"- Calibration: divide the logits by {temperature['value']:.6g} before the softmax "
            f"(fitted on {temperature['rows']} dev rows)."
        )
    if base.get("precision", "fp32") != "fp32":
        lines.append(f"- Learned under autocast in {base['precision']}: without it, logits differ.")
    if left_out := record.get("left_out"):
        counts = ", ".join(f"{count:,} of {kind}" for kind, count in left_out.items())
        lines.append(f"- **Left out**, as the format cannot hold them: {counts}. Answers differ.")
    return "\n".join([*lines, "", "```python", loading_code(record, form=form), "```", ""])
