"""A language model for prompts without the hub: MiniLM gets the head that it lacks.

A dense layer, a LayerNorm and a decoder tied to the word embeddings, which stay frozen, are trained
on the encoder with the training texts of the real data (no labels, no test rows), and the encoder
is tuned beside them. A masked LM finds hidden tokens, and its encoder is tuned after a fifth of the
steps; a causal LM finds each next token, and its encoder, which then sees what came before alone,
is tuned from the start. A new decoder's bias starts at the logarithm of the tokens' frequencies.
What was learned is measured on held-out texts: accuracy of tokens and perplexity, beside those of
answering by the frequencies of tokens alone. OUT is a checkpoint that `load_model(OUT, family=…)`
reads. It belongs outside of the repository and is not to be shipped: it learned from the data.

    python benchmarks/prompt_model.py --scale cpu --out OUT       # about half an hour on one core
    python benchmarks/prompt_model.py --scale smoke --out OUT     # does it run?
    python benchmarks/prompt_model.py --scale cpu --family causal_lm --model OUT --out CAUSAL
    python benchmarks/paper_experiment.py table1 --model OUT --set model.family=masked_lm

If OUT was made with the same settings, its numbers are printed and nothing is computed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cl_graft.data import load_task
from cl_graft.errors import InputError
from cl_graft.lab.results.run_results import machine
from cl_graft.models import find_minilm
from cl_graft.runtime.seeding import generator, permutation, seeded
from cl_graft.settings.run_files import versions

TASKS = ("sst2_sent", "cr", "mpqa", "ag_news", "qnli", "snli", "mnli", "qqp", "mrpc", "cola")
SCALES: Mapping[str, Mapping[str, Any]] = {
    "smoke": {"steps": 12, "batch": 8, "rows": 60, "held_out": 20, "length": 32},
    "cpu": {"steps": 1500, "batch": 32, "rows": None, "held_out": 1000, "length": 64},
    "long": {"steps": 24000, "batch": 32, "rows": None, "held_out": 1000, "length": 64},
}
HIDDEN = 0.3
"""Share of the tokens that are hidden in training; of these 80 % become the mask, 10 % another
token, 10 % stay, as BERT was trained (Devlin et al., 2019, https://arxiv.org/abs/1810.04805). Twice
its share, as small budgets favour more (Wettig et al., 2023, https://arxiv.org/abs/2202.08005)."""
HELD_OUT = 0.15
"""The same on held-out texts, where all become the mask, as in prompts."""
WARM_UP = 0.05
TUNED = {"masked_lm": 0.8, "causal_lm": 1.0}
"""Share of the steps that tune the encoder, too."""
FILE = "prompt_model.json"


@dataclass(frozen=True, eq=False)
class Texts:
    """Token ids of texts, without padding, and which token is what."""

    ids: list[Tensor]
    types: list[Tensor]
    mask: int
    pad: int
    special: Tensor
    vocabulary: int


@dataclass(frozen=True, eq=False)
class Batch:
    """Texts with tokens to find."""

    inputs: dict[str, Tensor]
    places: Tensor
    answers: Tensor


def main() -> None:
    """Train the head if OUT has none of these settings, and print how good it is."""
    parser = argparse.ArgumentParser(description="Train a language model's head for an encoder.")
    parser.add_argument("--family", choices=TUNED, default="masked_lm")
    parser.add_argument("--scale", choices=SCALES, default="cpu")
    parser.add_argument("--data", type=Path, default=os.environ.get("CL_GRAFT_DATA"))
    parser.add_argument("--tasks", default=",".join(TASKS), help="whose training texts to read")
    parser.add_argument("--model", help="folder of an encoder or masked LM; default: MiniLM's")
    parser.add_argument("--out", type=Path, required=True, help="folder of the checkpoint")
    parser.add_argument("--steps", type=int, help="in place of the scale's")
    parser.add_argument("--head-lr", type=float, default=1e-3)
    parser.add_argument("--encoder-lr", type=float, default=2e-4)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    scale = dict(SCALES[arguments.scale])
    scale["steps"] = arguments.steps or scale["steps"]
    asked = {
        "family": arguments.family, "scale": arguments.scale, **scale,
        "tasks": arguments.tasks.split(","), "head_lr": arguments.head_lr,
        "encoder_lr": arguments.encoder_lr, "seed": arguments.seed,
        "model": Path(arguments.model).name if arguments.model else "minilm",
    }  # fmt: skip
    try:
        found = read_finished(arguments.out, asked)
        if found is None:
            folder = Path(arguments.model) if arguments.model else find_minilm()
            found = make(folder, asked, data=arguments.data, out=arguments.out)
    except InputError as error:
        parser.error(str(error))
    sys.stdout.write(report(found))


def read_finished(out: Path, asked: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the numbers of a checkpoint that this benchmark wrote with these settings, if any."""
    file = out / FILE
    if file.exists() and json.loads(file.read_text())["settings"] == asked:
        return json.loads(file.read_text())
    if out.exists() and any(out.iterdir()):
        raise InputError(f"{out} is not empty, and was not made with these settings")
    return None


def make(folder: Path, asked: Mapping[str, Any], *, data: Path | None, out: Path) -> dict[str, Any]:
    """Train, measure, and write the checkpoint with its numbers."""
    from transformers import AutoTokenizer

    seed, started = asked["seed"], time.perf_counter()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with seeded(seed, "head"):
        model, new = load(folder, asked["family"])
    texts = read_texts(tokenizer, asked, data=data)
    order = permutation(len(texts.ids), seed, "held-out").tolist()
    test, train = order[: asked["held_out"]], order[asked["held_out"] :]
    shares = frequencies(texts, train)
    if new:
        with torch.no_grad():
            model.get_output_embeddings().bias.copy_(shares.log())
    learn(model, texts, train, asked)
    model.eval()
    found = {
        "settings": dict(asked),
        "command": "python benchmarks/prompt_model.py "
        + shlex.join(["--scale", asked["scale"], "--family", asked["family"]]),
        "texts": {"train": len(train), "held out": len(test)},
        "model": measure(model, texts, test, asked),
        "unigram": unigram(texts, shares, test, asked),
        "seconds": time.perf_counter() - started,
        "versions": versions(torch.device("cpu")),
        "machine": machine(torch.device("cpu")),
    }
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    (out / FILE).write_text(json.dumps(found, indent=1) + "\n")
    return found


def load(folder: Path, family: str) -> tuple[Any, bool]:
    """Return a model with a head, and whether the head is new."""
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    asked = {"pretrained_model_name_or_path": folder, "output_loading_info": True}
    if family == "causal_lm":
        model, told = AutoModelForCausalLM.from_pretrained(**asked, is_decoder=True)
    else:
        model, told = AutoModelForMaskedLM.from_pretrained(**asked)
    heads = ("cls", "lm_head")
    return model, any(name.split(".")[0] in heads for name in told["missing_keys"])


def read_texts(tokenizer: Any, asked: Mapping[str, Any], *, data: Path | None) -> Texts:
    """Read the training texts of all tasks, each once; pairs as pairs, for a causal LM in one."""
    rows: dict[tuple[str, str | None], None] = {}
    for name in asked["tasks"]:
        task = load_task(name, data=data)
        for row in task.train[: asked["rows"]]:
            rows[row.text, row.text_pair] = None
    ids: list[Tensor] = []
    types: list[Tensor] = []
    for first, second in rows:
        text, pair = first, second
        if asked["family"] == "causal_lm" and second is not None:
            text, pair = f"{first} {second}", None
        coded = tokenizer(text, pair, truncation=True, max_length=asked["length"])
        ids.append(torch.tensor(coded["input_ids"]))
        types.append(torch.tensor(coded.get("token_type_ids") or [0] * len(ids[-1])))
    special = torch.tensor(sorted(tokenizer.all_special_ids))
    return Texts(
        ids, types, tokenizer.mask_token_id, tokenizer.pad_token_id or 0, special, len(tokenizer)
    )


def learn(model: Any, texts: Texts, train: Sequence[int], asked: Mapping[str, Any]) -> None:
    """Train the head, and from a certain step on the encoder beside it."""
    head, encoder = find_head(model), model.base_model
    steps, seed = asked["steps"], asked["seed"]
    first_tuned = round(steps * (1 - TUNED[asked["family"]]))
    model.requires_grad_(False)
    frozen = {id(p) for p in model.get_input_embeddings().parameters()}
    own = [p for p in head.parameters() if id(p) not in frozen]
    body = [
        p for n, p in encoder.named_parameters() if "embeddings" not in n and id(p) not in frozen
    ]
    groups = [
        {"params": own, "base": asked["head_lr"]},
        {"params": body, "base": asked["encoder_lr"]},
    ]
    optimizer = torch.optim.AdamW(groups, lr=0.0, weight_decay=0.01)
    for parameter in own:
        parameter.requires_grad_(True)
    batches = in_batches(texts, train, size=asked["batch"], seed=seed)
    model.train()
    for step in range(steps):
        if step == first_tuned:
            for parameter in body:
                parameter.requires_grad_(True)
        share = min(1.0, (step + 1) / max(1, WARM_UP * steps)) * (1 - step / steps)
        for group in optimizer.param_groups:
            group["lr"] = share * group["base"]
        batch = make_batch(texts, next(batches), asked, draws=generator(seed, "hide", step))
        optimizer.zero_grad()
        with seeded(seed, "dropout", step):
            logits = compute_logits(model, head, batch, tuned=step >= first_tuned)
            loss = F.cross_entropy(logits, batch.answers)
            loss.backward()
        nn.utils.clip_grad_norm_([*own, *body], 1.0)
        optimizer.step()
        if (step + 1) % max(1, steps // 20) == 0:
            sys.stdout.write(f"step {step + 1} of {steps}: loss {loss.item():.3f}\n")
            sys.stdout.flush()


def compute_logits(model: Any, head: nn.Module, batch: Batch, *, tuned: bool) -> Tensor:
    """Return logits of shape (places, vocabulary): the decoder sees no other state."""
    with torch.set_grad_enabled(tuned and torch.is_grad_enabled()):
        states = model.base_model(**batch.inputs).last_hidden_state
    return head(states[batch.places])


def find_head(model: Any) -> nn.Module:
    """Return what makes logits of an encoder's states."""
    for name in ("cls", "lm_head"):
        if hasattr(model, name):
            return getattr(model, name)
    raise InputError(f"{type(model).__name__} has no head called cls or lm_head")


def in_batches(texts: Texts, places: Sequence[int], *, size: int, seed: int) -> Iterator[list[int]]:
    """Go through texts again and again, in batches of texts of similar length."""
    epoch = 0
    while True:
        order = [places[i] for i in permutation(len(places), seed, "epoch", epoch).tolist()]
        for start in range(0, len(order), 32 * size):
            near = sorted(order[start : start + 32 * size], key=lambda place: len(texts.ids[place]))
            parts = [near[at : at + size] for at in range(0, len(near), size)]
            for part in permutation(len(parts), seed, "part", epoch, start).tolist():
                yield parts[part]
        epoch += 1


def make_batch(
    texts: Texts,
    places: Sequence[int],
    asked: Mapping[str, Any],
    *,
    draws: torch.Generator,
    held_out: bool = False,
) -> Batch:
    """Ask for tokens of texts: hidden ones, at least one a batch, or each next one."""
    chosen = [texts.ids[place] for place in places]
    ids = nn.utils.rnn.pad_sequence(chosen, batch_first=True, padding_value=texts.pad)
    types = nn.utils.rnn.pad_sequence([texts.types[place] for place in places], batch_first=True)
    lengths = torch.tensor([len(own) for own in chosen])
    seen = torch.arange(ids.shape[1]) < lengths.unsqueeze(1)
    free = seen & ~torch.isin(ids, texts.special)
    inputs = {"input_ids": ids, "attention_mask": seen.long(), "token_type_ids": types}
    if asked["family"] == "causal_lm":
        before = nn.functional.pad(free[:, 1:], (0, 1))
        return Batch(inputs, before, ids[free & (torch.arange(ids.shape[1]) > 0)])
    drawn = torch.rand(ids.shape, generator=draws).masked_fill(~free, 2.0)
    share = HELD_OUT if held_out else HIDDEN
    hidden = free & (drawn <= max(share, float(drawn.min())))
    how = torch.rand(ids.shape, generator=draws)
    other = torch.randint(texts.vocabulary, ids.shape, generator=draws)
    shown = torch.where(hidden & (how >= 0.8) & (how < 0.9) & (not held_out), other, ids)
    inputs["input_ids"] = shown.masked_fill(hidden & ((how < 0.8) | held_out), texts.mask)
    return Batch(inputs, hidden, ids[hidden])


@torch.no_grad()
def measure(
    model: Any, texts: Texts, places: Sequence[int], asked: Mapping[str, Any]
) -> dict[str, float]:
    """Return accuracy of the tokens to find, and perplexity."""
    head, right, surprise, count = find_head(model), 0, 0.0, 0
    for batch in split_batches(texts, places, asked):
        logits = compute_logits(model, head, batch, tuned=False).float()
        right += int((logits.argmax(-1) == batch.answers).sum())
        surprise += float(F.cross_entropy(logits, batch.answers, reduction="sum"))
        count += len(batch.answers)
    return {"accuracy": right / count, "perplexity": math.exp(surprise / count), "tokens": count}


def frequencies(texts: Texts, places: Sequence[int]) -> Tensor:
    """Return the share of every token among those of texts, each counted once more than it is."""
    tokens = torch.cat([texts.ids[place] for place in places])
    tokens = tokens[~torch.isin(tokens, texts.special)]
    counts = 1.0 + torch.bincount(tokens, minlength=texts.vocabulary)[: texts.vocabulary]
    return counts / counts.sum()


def unigram(
    texts: Texts, shares: Tensor, places: Sequence[int], asked: Mapping[str, Any]
) -> dict[str, float]:
    """Return the same of answering by the shares of tokens alone."""
    answers = torch.cat([batch.answers for batch in split_batches(texts, places, asked)])
    return {
        "accuracy": float((answers == shares.argmax()).double().mean()),
        "perplexity": math.exp(-float(shares[answers].log().mean())),
        "tokens": len(answers),
    }


def split_batches(texts: Texts, places: Sequence[int], asked: Mapping[str, Any]) -> Iterator[Batch]:
    """Ask for tokens of held-out texts, the same ones each time."""
    for start in range(0, len(places), 32):
        draws = generator(asked["seed"], "held-out", start)
        yield make_batch(texts, places[start : start + 32], asked, draws=draws, held_out=True)


def report(found: Mapping[str, Any]) -> str:
    """Say how good the model is."""
    masked = found["settings"]["family"] == "masked_lm"
    what = "masked tokens" if masked else "next tokens"
    lines = [f"| | accuracy of {what} | perplexity |", "| --- | ---: | ---: |"]
    for called, name in (("masked LM" if masked else "causal LM", "model"), ("unigram", "unigram")):
        own = found[name]
        lines.append(f"| {called} | {100 * own['accuracy']:.1f} % | {own['perplexity']:,.1f} |")
    texts, tokens = found["texts"], found["model"]["tokens"]
    lines += [
        "",
        f"{tokens:,} {what} of {texts['held out']:,} held-out texts; trained on "
        f"{texts['train']:,} texts in {found['seconds']:,.0f} s.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
