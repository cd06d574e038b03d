"""The README of an exported task: a description, and lines of Python that load it without cl_graft.

Of an encoder they also define `answer(text, pair)`, which returns the logits of one text, fp32, in
the order of the labels; for tags those of each token, for extractive QA the text of the answer, of
a passage that fits into one window. Prompts and the token ids of their answers are in `task.json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cl_graft.integrations.import_sources import CLASSIFIER, HEADED_CLASSES
from cl_graft.kinds.text_task import MAX_LENGTH
from cl_graft.models.load import AUTO_CLASSES, FETCHED, name_outside
from cl_graft.runtime.escaping import for_markdown, for_markdown_code

_PASSAGE = """\
@torch.no_grad()
def answer(question, passage):  # the text of the surest span, of a passage of one window
    cut = {"truncation": "only_second", "max_length": LENGTH, "split_special_tokens": True}
    batch = tokenizer(question, passage, return_offsets_mapping=True, **cut)
    inputs = {name: torch.tensor([batch[name]]) for name in tokenizer.model_input_names}
    starts, ends = LOGITS
    columns = [n for n, part in enumerate(batch.sequence_ids()) if part == 1]
    spans = [(a, b) for a in columns for b in columns if a <= b < a + LONGEST]
    first, last = max(spans, key=lambda span: float(starts[span[0]] + ends[span[1]]))
    return passage[batch.offset_mapping[first][0] : batch.offset_mapping[last][1]].strip()"""

_ENCODED = """\
@torch.no_grad()
def answer(text, pair=None):
    cut = {"truncation": "longest_first", "max_length": LENGTH}
    options = {"split_special_tokens": True, "return_tensors": "pt", **cut}
    inputs = tokenizer(text, pair, **options)
    return LOGITS"""


def make_readme(record: Mapping[str, Any], *, format: str) -> str:
    """Write the README of an export from the content of its `task.json`."""
    base, names = record["base"], record.get("label_names") or []
    pinned = f" (revision {for_markdown(base['revision'])})" if "revision" in base else ""
    lines = [
        f"# {for_markdown(record['task'])}",
        "",
        f"One task of a bank of grafts, written by {record['written_by']}. Its graft sets "
        f"{record['coordinates']:,} weights ({record['density']:.4%} of those that can be grafted) "
        f"of {for_markdown_code(name_outside(base['model']))}{pinned} and leaves every other as it "
        "was.",
        "",
        *_describe_answers(record, names),
        f"- Texts: {'pairs' if record.get('pair') else 'single'}; at most "
        f"{record.get('max_length', MAX_LENGTH)} tokens.",
    ]
    if "prompt" in record:
        lines.append(
            f"- Prompt: {for_markdown_code(record['prompt']['template'])}. The token ids of the "
            "answers are in `task.json`."
        )
    if temperature := record.get("temperature"):
        lines.append(
            f"- Calibration: divide the logits by {temperature['value']:.6g} before the softmax "
            f"(fitted on {temperature['rows']} dev rows)."
        )
    if base.get("precision", "fp32") != "fp32":
        lines.append(f"- Learned under autocast in {base['precision']}: without it, logits differ.")
    return "\n".join([*lines, "", "```python", _loading_code(record, format), "```", ""])


def _describe_answers(record: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    shown = ", ".join(map(for_markdown_code, names))
    kind = record.get("kind")
    if kind == "extractive_qa":
        return ["- Answers: the part of a passage that answers a question."]
    if kind == "text2text":
        decoded = f"{record['beams']} beams" if record["beams"] > 1 else "greedily"
        return [f"- Answers: text of at most {record['longest']} tokens, decoded {decoded}."]
    if kind == "multi_label":
        return [
            f"- Labels, in the order of the logits, of which a text can have several: {shown}. The "
            "sigmoid of a logit is the probability of its label."
        ]
    if kind != "tagging":
        return [
            f"- Labels, in the order of the logits: {shown}." if shown else "- Answers: a number."
        ]
    lines = [f"- Tags, in the order of the logits: {shown}. A word's is that of its first token."]
    if intents := record.get("intent_names"):
        lines.append(
            f"- Intents: {', '.join(map(for_markdown_code, intents))}. Their layer, `intents` in "
            "`head.safetensors`, answers the last state of the first token."
        )
    return lines


def _loading_code(record: Mapping[str, Any], format: str) -> str:
    base, family, classifier = record["base"], record["family"], bool(record.get("classifier"))
    auto = AUTO_CLASSES[family]
    if classifier:
        auto = HEADED_CLASSES.get(record.get("kind", ""), CLASSIFIER)
    headed = family == "encoder" and not classifier
    imports = [
        "from pathlib import Path",
        "",
        "import torch",
        *(["from peft import PeftModel"] if format.startswith("peft-") else []),
        *(["from safetensors.torch import load_file"] if headed else []),
        f"from transformers import {auto}, AutoTokenizer",
    ]
    load, where = ['folder = Path(".")  # where this file lies'], ["folder"]
    if format != "hf":
        name = name_outside(base["model"])
        source = "its folder, or its name on the hub"
        if name in FETCHED:
            source = f"the folder that python -m cl_graft.models.{name} writes"
        load.append(f"base = {name!r}  # {source}")
        where = ["base"]
        where += [f"revision={base['revision']!r}"] if "revision" in base else []
    options = [*where, f"dtype=torch.{base['dtype']}"]
    options += ["add_pooling_layer=False"] if record.get("without_pooler") else []
    load += [
        f"tokenizer = AutoTokenizer.from_pretrained({', '.join(where)})",
        f"model = {auto}.from_pretrained({', '.join(options)}).eval()",
    ]
    if format.startswith("peft-"):
        load.append("model = PeftModel.from_pretrained(model, folder).eval()")
    if headed:
        load.append('head = load_file(folder / "head.safetensors")')
    answering = ["", "", _answering_code(record, classifier)] if family == "encoder" else []
    return "\n".join([*imports, "", *load, *answering])


def _answering_code(record: Mapping[str, Any], classifier: bool) -> str:
    kind, code, states = record.get("kind"), _ENCODED, "model(**inputs).last_hidden_state[0]"
    if kind == "extractive_qa":
        code = _PASSAGE.replace("LONGEST", repr(record.get("longest_answer", 30)))
        logits = f"{_linear(states, 'ends')}.T"
        if classifier:
            logits = "(side[0].float() for side in model(**inputs).to_tuple()[:2])"
    elif classifier:
        logits = "model(**inputs).logits[0].float()"
    elif kind == "tagging":
        logits = _linear(states, "tags")
    else:
        states = f"{states}.float()"
        pooled = f"{states}[0]" if record.get("pooling") == "first" else f"{states}.mean(0)"
        logits = _head(record, pooled)
    length = repr(record.get("max_length", MAX_LENGTH))
    return code.replace("LENGTH", length).replace("LOGITS", logits)


def _head(record: Mapping[str, Any], features: str) -> str:
    """Return the expression that makes logits of features with the tensors of `head`."""
    activation = record.get("activation")
    if activation is None:
        return _linear(features, "labels" if record.get("kind") == "multi_label" else "")
    function = "torch.tanh" if activation == "tanh" else f"torch.nn.functional.{activation}"
    return _linear(f"{function}({_linear(features, 'dense')})", "out")


def _linear(inputs: str, part: str) -> str:
    weight, bias = (f'head["{part}.{n}"]' if part else f'head["{n}"]' for n in ("weight", "bias"))
    return f"torch.nn.functional.linear({inputs}.to({weight}.dtype), {weight}, {bias}).float()"
