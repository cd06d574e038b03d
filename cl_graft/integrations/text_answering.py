"""The lines of an export's README that answer with text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cl_graft.grafts.bank import Entry
from cl_graft.models.text_generation import TextHead
from cl_graft.runtime.escaping import for_python

__all__ = ["describe_text_head", "text_answering_code", "text_asking_code"]


def describe_text_head(entry: Entry) -> dict[str, Any]:
    """Return how an entry decodes, for its record."""
    head = TextHead.of(entry.head)
    return {"stop_token_ids": head.stops.tolist(), "longest": head.longest, "beams": head.beams}


def text_asking_code(record: Mapping[str, Any]) -> list[str]:
    """Return the lines that define `ask(text)` for a chat: the token ids of the model's template.

    Args:
        record: Content of `task.json` of a task without a prompt.
    """
    system = (record.get("chat") or {}).get("system")
    before = f'[{{"role": "system", "content": {for_python(system)}}}]' if system else "[]"
    return [
        "def ask(text, pair=None):  # long messages are not cut",
        f'    messages = {before} + [{{"role": "user", "content": text}}]',
        "    options = {'add_generation_prompt': True, 'tokenize': False}",
        "    prompt = tokenizer.apply_chat_template(messages, **options)",
        "    return tokenizer(prompt, add_special_tokens=False).input_ids",
    ]


def text_answering_code(record: Mapping[str, Any]) -> list[str]:
    """Return the lines of `answer`, which need `ask`, `model` and `tokenizer`.

    Args:
        record: Content of `task.json`.
    """
    stop = (record.get("decoding") or {}).get("stop") or []
    new = "made[len(ids) :]" if record["family"] == "causal_lm" else "made[1:]"
    cut = [f"    for end in {for_python(stop)}:", "        text = text.partition(end)[0]"]
    return [
        "model.generation_config = GenerationConfig()  # not what the checkpoint says of decoding",
        f"stops = {for_python(record['stop_token_ids'])}",
        "start = getattr(model.config, 'decoder_start_token_id', None)",
        "",
        "",
        "@torch.no_grad()",
        "def answer(text, pair=None):",
        "    ids = ask(text, pair)",
        "    asked = torch.tensor([ids])",
        '    options = {"do_sample": False, "eos_token_id": stops, "pad_token_id": stops[0]}',
        f'    options |= {{"max_new_tokens": {record["longest"]}, "num_beams": {record["beams"]}}}',
        '    options |= {"decoder_start_token_id": start}',
        "    marks = torch.ones_like(asked)",
        "    made = model.generate(asked, attention_mask=marks, **options)[0].tolist()",
        f"    written = {new}",
        "    ends = [place for place, token in enumerate(written) if token in stops]",
        "    text = tokenizer.decode(written[: (ends or [None])[0]], skip_special_tokens=True)",
        *(cut if stop else []),
        "    return text.strip()",
    ]
