"""The README of an exported task: a description, and lines of Python that answer texts with it.

The lines work without cl_graft. They define `answer(text, pair)`, which returns the logits of one
text, of shape (labels,), fp32, in the order of the labels; for tags those of each token, for
extractive QA and text to text the text of the answer. They cut no prompt and read a passage in one
window: longer texts are answered by a bank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from cl_graft.data import Prompt
from cl_graft.errors import DamagedFile
from cl_graft.kinds.prompts import Family, Piece
from cl_graft.kinds.text_encoding import split_template
from cl_graft.kinds.text_task import MAX_LENGTH
from cl_graft.models.load import AUTO_CLASSES
from cl_graft.runtime.escaping import for_markdown, for_markdown_code, for_python

_CLASSES = {
    "extractive_qa": "AutoModelForQuestionAnswering",
    "tagging": "AutoModelForTokenClassification",
}
"""Class of transformers that reads an export with its head, by kind; for others a classifier's."""

_FILLED = """\
def fill(name, text):  # NAME, NAME- without its last mark, NAME_lower with a small first letter
    bare = text[:-1] if text and unicodedata.category(text[-1]).startswith("P") else text
    small = {f"{name}_lower": text[:1].lower() + text[1:]}
    return {name: text, f"{name}-": bare, **small, f"{name}_lower-": bare[:1].lower() + bare[1:]}


def ask(text, pair=None):  # the token ids of the filled template, which is not cut
    fields = {**fill("text", text.strip()), **fill("text_pair", (pair or "").strip())}
    filled = [half.format_map(fields) for half in template]
    options = {"add_special_tokens": False, "split_special_tokens": True}
    halves = [tokenizer(half, **options).input_ids for half in filled]
    ids = halves[0] + [i for half in halves[1:] for i in [tokenizer.mask_token_id, *half]]
    return begin + ids + end"""

_SPOKEN = """\
@torch.no_grad()
def answer(text, pair=None):
    ids, scores = ask(text, pair), []
    for label in LABELS:
        CALL
        scores.append(spoken[range(len(label)), label].sum())
    return torch.stack(scores)"""

_SPOKEN_CALLS = {
    "causal_lm": """\
logits = model(torch.tensor([ids + label])).logits[0, len(ids) - 1 : -1]
        spoken = logits.float().log_softmax(-1)""",
    "seq2seq_lm": """\
written = torch.tensor([[model.config.decoder_start_token_id, *label[:-1]]])
        made = model(input_ids=torch.tensor([ids]), decoder_input_ids=written)
        spoken = made.logits[0].float().log_softmax(-1)""",
}

_MASKED = """\
@torch.no_grad()
def answer(text, pair=None):
    ids = ask(text, pair)
    logits = model(torch.tensor([ids])).logits[0, ids.index(tokenizer.mask_token_id)]
    return logits[LABELS].float()"""

_WRITTEN = """\
model.generation_config = GenerationConfig()  # not what the checkpoint says of decoding
stops = STOPS


@torch.no_grad()
def answer(text, pair=None):
    asked = torch.tensor([ask(text, pair)])
    start = getattr(model.config, "decoder_start_token_id", None)
    options = {"do_sample": False, "eos_token_id": stops, "pad_token_id": stops[0]}
    options |= {"max_new_tokens": LONGEST, "num_beams": BEAMS, "decoder_start_token_id": start}
    written = model.generate(asked, attention_mask=torch.ones_like(asked), **options)[0].tolist()
    written = written[FIRST:]
    ends = [place for place, token in enumerate(written) if token in stops]
    text = tokenizer.decode(written[: (ends or [None])[0]], skip_special_tokens=True)
    for end in TEXTS:
        text = text.partition(end)[0]
    return text.strip()"""

_CHAT = """\
def ask(text, pair=None):  # long messages are not cut
    messages = SYSTEM + [{"role": "user", "content": text}]
    options = {"add_generation_prompt": True, "tokenize": False}
    prompt = tokenizer.apply_chat_template(messages, **options)
    return tokenizer(prompt, add_special_tokens=False).input_ids"""

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


def make_readme(
    record: Mapping[str, Any], *, format: str, frame: tuple[Sequence[int], Sequence[int]]
) -> str:
    """Write the text of the README of an export.

    Args:
        record: Content of `task.json`.
        format: A name in `FORMATS`.
        frame: Tokens that the tokenizer puts before and after a text.
    """
    base, names = record["base"], record.get("label_names") or []
    pinned = f" (revision {for_markdown(base['revision'])})" if "revision" in base else ""
    lines = [
        f"# {for_markdown(record['task'])}",
        "",
        f"One task of a bank of grafts, written by {record['written_by']}. Its graft sets "
        f"{record['coordinates']:,} weights ({record['density']:.4%} of those that can be grafted) "
        f"of {for_markdown_code(base['model'])}{pinned} and leaves every other as it was.",
        "",
        *_describe_answers(record, names),
        f"- Texts: {'pairs' if record.get('pair') else 'single'}; at most "
        f"{record.get('max_length', MAX_LENGTH)} tokens.",
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
    code = _loading_code(record, format, frame)
    return "\n".join([*lines, "", "```python", code, "```", ""])


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
        lines.append(
            f"- Intents: {', '.join(map(for_markdown_code, intents))}. Their layer, `intents` in "
            "`head.safetensors`, answers the last state of the first token."
        )
    return lines


def _loading_code(
    record: Mapping[str, Any], format: str, frame: tuple[Sequence[int], Sequence[int]]
) -> str:
    """Write the lines that define `answer(text, pair)`."""
    base, family, kind = record["base"], record["family"], record.get("kind")
    classifier, prompted = bool(record.get("classifier")), family != "encoder"
    auto = AUTO_CLASSES[family]
    if classifier:
        auto = _CLASSES.get(record.get("kind", ""), "AutoModelForSequenceClassification")
    headed, chat = not prompted and not classifier, kind == "text2text" and "prompt" not in record
    imports = [
        *(["import unicodedata"] if prompted and not chat else []),
        "from pathlib import Path",
        "",
        "import torch",
        *(["from peft import PeftModel"] if format == "peft-shira" else []),
        *(["from safetensors.torch import load_file"] if headed else []),
        f"from transformers import {auto}, AutoTokenizer"
        + (", GenerationConfig" if kind == "text2text" else ""),
    ]
    load, where = ['folder = Path(".")  # where this file lies'], ["folder"]
    if format != "hf":
        load.append(f"base = {for_python(base['model'])}  # its folder, or its name on the hub")
        where = ["base"]
        where += [f"revision={for_python(base['revision'])}"] if "revision" in base else []
    options = [*where, f"dtype=torch.{base['dtype']}"]
    options += ["add_pooling_layer=False"] if record.get("without_pooler") else []
    load += [
        f"tokenizer = AutoTokenizer.from_pretrained({', '.join(where)})",
        f"model = {auto}.from_pretrained({', '.join(options)}).eval()",
    ]
    if format == "peft-shira":
        load.append("model = PeftModel.from_pretrained(model, folder).eval()")
    if headed:
        load.append('head = load_file(folder / "head.safetensors")')
    asking = []
    if chat:
        system = (record.get("chat") or {}).get("system")
        before = f'[{{"role": "system", "content": {for_python(system)}}}]' if system else "[]"
        asking = ["", "", _CHAT.replace("SYSTEM", before)]
    elif prompted:
        asking = _asking_code(record, frame)
    answering = _answering_code(record, classifier=classifier)
    return "\n".join([*imports, "", *load, *asking, "", "", answering])


def _asking_code(
    record: Mapping[str, Any], frame: tuple[Sequence[int], Sequence[int]]
) -> list[str]:
    """Write the lines that define `ask(text, pair)`, which returns token ids."""
    family = cast(Family, record["family"])
    if "prompt" not in record:
        raise DamagedFile(
            f"the entry is damaged: family {family!r} needs a prompt, and it holds none"
        )
    prompt = Prompt(record["prompt"]["template"], record["prompt"]["words"])
    halves = [_as_format(half) for half in split_template(prompt, family)]
    begin, end = frame
    return [
        f"template = {for_python(halves)}" + ("  # parted at the mask" if prompt.masked else ""),
        f"begin, end = {for_python(list(begin))}, "
        # In a causal model the answer follows.
        f"{for_python([] if family == 'causal_lm' else list(end))}",
        "",
        "",
        _FILLED,
    ]


def _as_format(pieces: Sequence[Piece]) -> str:
    """Return a half of a template as a format string of Python."""
    names = {"input": "text", "instruction": "text_pair"}
    return "".join(
        piece.literal.replace("{", "{{").replace("}", "}}")
        + (f"{{{names.get(piece.field, piece.field)}}}" if piece.field else "")
        for piece in pieces
    )


def _answering_code(record: Mapping[str, Any], *, classifier: bool) -> str:
    """Write the lines of `answer`."""
    family, kind = record["family"], record.get("kind")
    if kind == "text2text":
        stops = (record.get("decoding") or {}).get("stop") or []
        code = _WRITTEN.replace("STOPS", for_python(record["stop_token_ids"]))
        code = code.replace("FIRST", "asked.shape[1]" if family == "causal_lm" else "1")
        code = code.replace("LONGEST", for_python(record["longest"]))
        return code.replace("BEAMS", for_python(record["beams"])).replace(
            "TEXTS", for_python(list(stops))
        )
    if family == "masked_lm":
        return _MASKED.replace(
            "LABELS", for_python([tokens[0] for tokens in record["label_token_ids"]])
        )
    if family != "encoder":
        code = _SPOKEN.replace("CALL", _SPOKEN_CALLS[family])
        return code.replace("LABELS", for_python(record["label_token_ids"]))
    length = for_python(record.get("max_length", MAX_LENGTH))
    code, states = _ENCODED, "model(**inputs).last_hidden_state[0]"
    if kind == "extractive_qa":
        code = _PASSAGE.replace("LONGEST", for_python(record.get("longest_answer", 30)))
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
    return code.replace("LENGTH", length).replace("LOGITS", logits)


def _head(record: Mapping[str, Any], features: str) -> str:
    """Return the expression that makes logits of features with the tensors of `head`."""
    activation = record.get("activation")
    if activation is None:
        return _linear(features, "labels" if record.get("kind") == "multi_label" else "")
    function = "torch.tanh" if activation == "tanh" else f"torch.nn.functional.{activation}"
    return _linear(f"{function}({_linear(features, 'dense')})", "out")


def _linear(inputs: str, part: str) -> str:
    """Return the expression of a linear layer of `head`."""
    weight, bias = (f'head["{part}.{n}"]' if part else f'head["{n}"]' for n in ("weight", "bias"))
    return f"torch.nn.functional.linear({inputs}.to({weight}.dtype), {weight}, {bias}).float()"
