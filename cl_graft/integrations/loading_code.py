"""The lines of Python that load an exported task and answer with it, without this package.

They define `answer(text, pair)`, which returns the logits of one text, of shape (labels,), fp32, in
the order of the labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cl_graft.data import Prompt
from cl_graft.integrations.prompt_code import asking_code
from cl_graft.runtime.escaping import for_python

__all__ = ["loading_code"]

_CLASSES = {
    "encoder": "AutoModel",
    "masked_lm": "AutoModelForMaskedLM",
    "causal_lm": "AutoModelForCausalLM",
}
_LENGTH = 128
"""Tokens a row where the bank does not say."""


def loading_code(record: Mapping[str, Any], *, form: str) -> str:
    """Write the lines for an export.

    Args:
        record: What `task.json` holds.
        form: The format.
    """
    classifier = bool(record.get("classifier"))
    auto = "AutoModelForSequenceClassification" if classifier else _CLASSES[record["family"]]
    headed = record["family"] == "encoder" and not classifier
    prompted = record["family"] != "encoder"
    imports = {
        "from pathlib import Path",
        "import torch",
        f"from transformers import {auto}, AutoTokenizer",
        *(["from peft import PeftModel"] if form == "peft-shira" else []),
        *(["from safetensors.torch import load_file"] if headed or "overlay" in form else []),
        *(["import unicodedata"] if prompted else []),
    }
    load = _load(record, auto, form)
    if headed and "overlay" in form:
        load.append('head = {key[5:]: overlay[key] for key in overlay if key.startswith("head.")}')
    elif headed:
        load.append('head = load_file(folder / "head.safetensors")')
    if prompted:
        prompt = Prompt(record["prompt"]["template"], record["prompt"]["words"])
        length = record.get("max_length", _LENGTH)
        load += ["", *asking_code(prompt, family=record["family"], max_length=length)]
    answer = _answer(record, classifier=classifier)
    lines = [*sorted(imports, key=str.split), "", *load, "", "", *answer]
    return "\n".join(lines)


def _load(record: Mapping[str, Any], auto: str, form: str) -> list[str]:
    base = record["base"]
    lines = ['folder = Path(".")  # where this file lies']
    where = ["folder"]
    if form != "hf":
        lines.append(f"base = {for_python(base['model'])}  # its folder, or its name on the hub")
        where = ["base"]
        where += [f"revision={for_python(base['revision'])}"] if "revision" in base else []
    options = [*where, f"dtype=torch.{base['dtype']}"]
    options += ["add_pooling_layer=False"] if record.get("without_pooler") else []
    lines += [
        f"tokenizer = AutoTokenizer.from_pretrained({', '.join(where)})",
        f"model = {auto}.from_pretrained({', '.join(options)}).eval()",
    ]
    if form == "peft-shira":
        lines.append("model = PeftModel.from_pretrained(model, folder).eval()")
    if form == "safetensors-overlay":
        lines += [
            'overlay = load_file(folder / "overlay.safetensors")',
            "for name, parameter in model.named_parameters():",
            '    if f"{name}.index" in overlay:',
            '        index, values = overlay[f"{name}.index"], overlay[f"{name}.values"]',
            "        parameter.data.view(-1)[index.long()] = values",
        ]
    return lines


def _answer(record: Mapping[str, Any], *, classifier: bool) -> list[str]:
    """Return the lines of `answer`."""
    start = ["@torch.no_grad()", "def answer(text, pair=None):"]
    if record["family"] == "encoder":
        length = for_python(record.get("max_length", _LENGTH))
        start += [
            f'    cut = {{"truncation": "longest_first", "max_length": {length}}}',
            '    options = {"split_special_tokens": True, "return_tensors": "pt", **cut}',
            "    batch = tokenizer(text, pair, **options)",
        ]
        if classifier:
            return [*start, "    return model(**batch).logits[0].float()"]
        pooled = "states[:, 0]"
        if record.get("pooling") != "first":
            pooled = "states.sum(1) / states.shape[1]"
        return [
            *start,
            "    states = model(**batch).last_hidden_state.float()",
            f"    features = {pooled}",
            *_head(record),
        ]
    labels = record["label_token_ids"]
    start.append("    ids = ask(text, pair)")
    if record["family"] == "masked_lm":
        words = for_python([tokens[0] for tokens in labels])
        return [
            *start,
            "    logits = model(torch.tensor([ids])).logits[0, ids.index(tokenizer.mask_token_id)]",
            f"    return logits[{words}].float()",
        ]
    return [
        *start,
        "    scores = []",
        f"    for label in {for_python(labels)}:",
        "        logits = model(torch.tensor([ids + label])).logits[0].float().log_softmax(-1)",
        "        spoken = range(len(ids) - 1, len(ids + label) - 1)",
        "        scores.append(logits[spoken, label].sum())",
        "    return torch.stack(scores)",
    ]


def _head(record: Mapping[str, Any]) -> list[str]:
    """Return the lines that make logits of `features` with the tensors of `head`."""
    linear = "torch.nn.functional.linear"
    activation = record.get("activation")
    if activation is None:
        return [
            '    features = features.to(head["weight"].dtype)',
            f'    return {linear}(features, head["weight"], head["bias"])[0].float()',
        ]
    function = "torch.tanh" if activation == "tanh" else f"torch.nn.functional.{activation}"
    return [
        f'    inner = {linear}(features, head["dense.weight"], head["dense.bias"])',
        f'    return {linear}({function}(inner), head["out.weight"], head["out.bias"])[0].float()',
    ]
