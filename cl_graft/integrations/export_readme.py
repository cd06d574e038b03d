"""The README of an exported task: a description, and lines of Python that answer texts with it.

The lines work without cl_graft. They define `answer(text, pair)`, which returns the logits of one
text, of shape (labels,), fp32, in the order of the labels; for extractive QA it returns the
text of the answer, as for text to text; for tagging the tags of the words. A prompt is filled as in
`cl_graft.kinds.text_encoding`: a text that is too long loses its end, the longer of two first; the
template is never cut, and a special token that a text spells out stays plain characters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from cl_graft.data import Prompt
from cl_graft.errors import DamagedFile
from cl_graft.integrations.question_answering import answering_code
from cl_graft.integrations.text_answering import text_answering_code, text_asking_code
from cl_graft.integrations.token_classifier import tagging_code
from cl_graft.kinds.prompt_encoding import split_template
from cl_graft.kinds.prompts import Family, Piece
from cl_graft.kinds.text_task import MAX_LENGTH
from cl_graft.models.load import AUTO_CLASSES
from cl_graft.runtime.escaping import for_markdown, for_markdown_code, for_python

__all__ = ["make_readme"]

_CLASSES = {
    "extractive_qa": "AutoModelForQuestionAnswering",
    "tagging": "AutoModelForTokenClassification",
}
"""Class of transformers that reads an export with its head, by kind."""

_ASKING = """\
probe = tokenizer("a", return_special_tokens_mask=True)
marks = probe.special_tokens_mask  # what the tokenizer puts around a text
begin = probe.input_ids[: marks.index(0)]
end = probe.input_ids[len(marks) - marks[::-1].index(0) :]
names = ["bos", "eos", "cls", "sep", "mask", "pad"]
others = [getattr(tokenizer, f"{name}_token_id") for name in names]
added = tokenizer.added_tokens_decoder.items()
special = {*tokenizer.all_special_ids, *(token for token, one in added if one.special)}
if tokenizer.unk_token_id not in others:
    special.discard(tokenizer.unk_token_id)


def filled(field, text, pair):
    value = (pair if field.startswith("text_pair") else text).strip()
    if field.endswith("-") and value and unicodedata.category(value[-1]).startswith("P"):
        value = value[:-1]  # its last character, where that is punctuation
    return value[:1].lower() + value[1:] if field.rstrip("-").endswith("_lower") else value


def tokens(half, text, pair):  # each with its owner: 0 and 1 are the texts, -1 is the template
    whole, owners, found = "", [], []
    for literal, field in half:
        value = filled(field, text, pair) if field else ""
        whole += literal + value
        owners += [-2 if character.isspace() else -1 for character in literal]
        owners += [int(field.startswith("text_pair"))] * len(value)
    options = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
    batch = tokenizer(whole, return_offsets_mapping=True, **options)
    for token, (start, stop) in zip(batch.input_ids, batch.offset_mapping):
        covered = owners[start:stop] or owners[max(start - 1, 0) : start + 1]
        texts = [owner for owner in covered if owner >= 0]
        if token not in special:
            found.append((token, texts[0] if texts and -1 not in covered else -1))
    return found


def ask(text, pair=None):  # what is too long is cut off the ends of the texts, the longest first
    halves = [tokens(half, text, pair) for half in template]
    left = [sum(owner == number for half in halves for _, owner in half) for number in (0, 1)]
    for _ in range(len(begin) + sum(map(len, halves)) + len(middle) + len(end) - max_length):
        left[0 if left[0] >= left[1] else 1] -= 1
    ids = list(begin)
    for number, half in enumerate(halves):
        ids += middle if number else []
        for token, owner in half:
            if owner >= 0:
                left[owner] -= 1
            if owner < 0 or left[owner] >= 0:
                ids.append(token)
    return ids + end"""

_KEPT_END = """\
        if (literal, field) == half[-1]:  # line breaks at the end of what is asked stay
            row = pair if field == "text_pair" else text
            value += row[len(row.rstrip()) :].rstrip(" ")
        whole += literal + value
"""


def make_readme(record: Mapping[str, Any], *, format: str) -> str:
    """Write the text of the README of an export.

    Args:
        record: Content of `task.json`.
        format: A name in `FORMATS`.
    """
    base, names = record["base"], record.get("label_names") or []
    pinned = f" (revision {for_markdown(base['revision'])})" if "revision" in base else ""
    question = record.get("kind") == "extractive_qa"
    lines = [
        f"# {for_markdown(record['task'])}",
        "",
        f"One task of a bank of grafts, written by {record['written_by']}. Its graft sets "
        f"{record['coordinates']:,} weights ({record['density']:.4%} of those that can be grafted) "
        f"of {for_markdown_code(base['model'])}{pinned} and leaves every other as it was.",
        "",
        *_describe_answers(record, names),
        f"- Texts: {'pairs' if record.get('pair') else 'single'}; at most "
        f"{record.get('max_length', MAX_LENGTH)} tokens{' a window' if question else ''}.",
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
    return "\n".join([*lines, "", "```python", _loading_code(record, format), "```", ""])


def _describe_answers(record: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Say what the model answers."""
    shown = ", ".join(map(for_markdown_code, names))
    if record.get("kind") == "extractive_qa":
        return ["- Answers: the part of a passage that answers a question."]
    if record.get("kind") == "text2text":
        decoded = f"{record['beams']} beams" if record["beams"] > 1 else "greedily"
        return [f"- Answers: text of at most {record['longest']} tokens, decoded {decoded}."]
    if record.get("kind") == "multi_label":
        return [
            f"- Labels, in the order of the logits, of which a text can have several: {shown}. The "
            "sigmoid of a logit is the probability of its label."
        ]
    if record.get("kind") != "tagging":
        return [
            f"- Labels, in the order of the logits: {shown}." if shown else "- Answers: a number."
        ]
    lines = [f"- Tags, in the order of the logits: {shown}. A word's is that of its first token."]
    if intents := record.get("intent_names"):
        lines.append(f"- Intents: {', '.join(map(for_markdown_code, intents))}.")
        if record.get("classifier"):
            lines[-1] += (
                " The class of transformers has no place for intents: their layer is in "
                "`head.safetensors`, and answers the last state of the first token."
            )
    return lines


def _loading_code(record: Mapping[str, Any], format: str) -> str:
    """Write the lines that define `answer(text, pair)`."""
    classifier = bool(record.get("classifier"))
    auto = AUTO_CLASSES[record["family"]]
    if classifier:
        auto = _CLASSES.get(record.get("kind", ""), "AutoModelForSequenceClassification")
    headed = record["family"] == "encoder" and (not classifier or "intent_names" in record)
    prompted, writes = record["family"] != "encoder", record.get("kind") == "text2text"
    characters = ("prompt" in record and prompted) or record.get("kind") == "extractive_qa"
    imports = {
        "from pathlib import Path",
        "import torch",
        f"from transformers import {auto}, AutoTokenizer{', GenerationConfig' if writes else ''}",
        *(["from peft import PeftModel"] if format == "peft-shira" else []),
        *(["from safetensors.torch import load_file"] if headed or "overlay" in format else []),
        *(["import unicodedata"] if characters else []),
    }
    load = _load(record, auto, format)
    if headed and "overlay" in format:
        load.append('head = {key[5:]: overlay[key] for key in overlay if key.startswith("head.")}')
    elif headed:
        load.append('head = load_file(folder / "head.safetensors")')
    if writes and "prompt" not in record:
        load += ["", "", *text_asking_code(record)]
    elif prompted and "prompt" not in record:
        raise DamagedFile(
            f"the entry is damaged: family {record['family']!r} needs a prompt, and it holds none"
        )
    elif prompted:
        prompt = Prompt(record["prompt"]["template"], record["prompt"]["words"])
        load += ["", *_asking_code(prompt, record)]
    answer = _answer(record, classifier=classifier)
    lines = [*sorted(imports, key=str.split), "", *load, "", "", *answer]
    return "\n".join(lines)


def _load(record: Mapping[str, Any], auto: str, format: str) -> list[str]:
    base = record["base"]
    lines = ['folder = Path(".")  # where this file lies']
    where = ["folder"]
    if format != "hf":
        lines.append(f"base = {for_python(base['model'])}  # its folder, or its name on the hub")
        where = ["base"]
        where += [f"revision={for_python(base['revision'])}"] if "revision" in base else []
    options = [*where, f"dtype=torch.{base['dtype']}"]
    options += ["add_pooling_layer=False"] if record.get("without_pooler") else []
    lines += [
        f"tokenizer = AutoTokenizer.from_pretrained({', '.join(where)})",
        f"model = {auto}.from_pretrained({', '.join(options)}).eval()",
    ]
    if format == "peft-shira":
        lines.append("model = PeftModel.from_pretrained(model, folder).eval()")
    if format == "safetensors-overlay":
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
    if record.get("kind") == "extractive_qa":
        return answering_code(record, length=record.get("max_length", MAX_LENGTH))
    if record.get("kind") == "tagging":
        return tagging_code(record, length=record.get("max_length", MAX_LENGTH))
    if record.get("kind") == "text2text":
        return text_answering_code(record)
    start = ["@torch.no_grad()", "def answer(text, pair=None):"]
    if record["family"] == "encoder":
        length = for_python(record.get("max_length", MAX_LENGTH))
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
    if record["family"] == "seq2seq_lm":
        return [
            *start,
            "    start, scores = model.config.decoder_start_token_id, []",
            f"    for label in {for_python(labels)}:",
            "        written = torch.tensor([[start, *label[:-1]]])",
            "        made = model(input_ids=torch.tensor([ids]), decoder_input_ids=written)",
            "        spoken = made.logits[0].float().log_softmax(-1)",
            "        scores.append(spoken[range(len(label)), label].sum())",
            "    return torch.stack(scores)",
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
        part = "labels." if record.get("kind") == "multi_label" else ""
        weight, bias = (f'head["{part}{name}"]' for name in ("weight", "bias"))
        return [
            f"    features = features.to({weight}.dtype)",
            f"    return {linear}(features, {weight}, {bias})[0].float()",
        ]
    function = "torch.tanh" if activation == "tanh" else f"torch.nn.functional.{activation}"
    return [
        f'    inner = {linear}(features, head["dense.weight"], head["dense.bias"])',
        f'    return {linear}({function}(inner), head["out.weight"], head["out.bias"])[0].float()',
    ]


def _asking_code(prompt: Prompt, record: Mapping[str, Any]) -> list[str]:
    """Write the lines that define `ask(text, pair)`, which returns token ids.

    They need `tokenizer`, and `unicodedata` to be imported.
    """
    family, max_length = cast(Family, record["family"]), record.get("max_length", MAX_LENGTH)
    max_length -= record.get("longest", 0)
    halves = ", ".join(map(_half, split_template(prompt, family)))
    where = "before the mask, and behind it" if prompt.masked else "what is asked"
    code = _ASKING
    if family == "causal_lm":  # the answer follows, so nothing ends the row
        line = next(line for line in code.splitlines() if line.startswith("end = "))
        code = code.replace(line, "end = []")
    if record.get("kind") == "text2text" and family == "causal_lm" and prompt.pieces[-1].field:
        code = code.replace("        whole += literal + value\n", _KEPT_END)
    if record.get("kind") == "text2text":
        code = _cut_the_input(code, from_start=(record.get("decoding") or {}).get("cut") == "left")
    return [
        f"max_length = {for_python(max_length)}",
        f"template = [{halves}]  # {where}",
        f"middle = {'[tokenizer.mask_token_id]' if prompt.masked else '[]'}",
        *code.splitlines(),
    ]


def _cut_the_input(code: str, *, from_start: bool) -> str:
    """Return the code that asks, changed so that inputs alone are cut, and on one side."""
    code = code.replace("left[0 if left[0] >= left[1] else 1] -= 1", "left[0] -= 1")
    code = code.replace("cut off the ends of the texts, the longest first", "cut off the input")
    if not from_start:
        return code
    count = "    gone = sum(owner == 0 for half in halves for _, owner in half) - left[0]\n"
    code = code.replace("    ids = list(begin)\n", f"{count}    ids = list(begin)\n")
    code = code.replace("if owner >= 0:", "if owner == 0:").replace("left[owner] -= 1", "gone -= 1")
    return code.replace("if owner < 0 or left[owner] >= 0:", "if owner != 0 or gone < 0:")


def _half(pieces: Sequence[Piece]) -> str:
    names = {"input": "text", "instruction": "text_pair"}
    fields = [(piece.literal, names.get(piece.field, piece.field)) for piece in pieces]
    rows = (f"({for_python(literal)}, {for_python(field)})" for literal, field in fields)
    return f"[{', '.join(rows)}]"
