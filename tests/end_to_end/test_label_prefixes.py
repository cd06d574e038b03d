"""Labels whose tokens begin as those of other labels do are learned, and answered alike."""

import json
from dataclasses import replace

import pytest
import torch
from slow_cases import slow
from tiny_runs import tiny_run

from cl_graft import load_task, open_bank
from cl_graft.data.encoded_task import encode_task
from cl_graft.errors import InputError
from cl_graft.integrations import export_task
from cl_graft.kinds import Row, TextTask
from cl_graft.kinds.prompts import Prompt, default_prompts
from cl_graft.kinds.text_encoding import label_token_ids
from cl_graft.kinds.text_task import make_task_head
from cl_graft.models import load_model
from cl_graft.models.heads import LabelStrings

LABELS = ("rain", "rain again", "team")
ROWS = tuple(
    Row(f"{lead} {word}{end}", None, label)
    for label, word in enumerate(("oil", "river", "phone"))
    for lead in ("It was", "the")
    for end in (".", "!")
)
FAMILIES = {"gpt2": "causal_lm", "llama": "causal_lm", "t5": "seq2seq_lm"}
MODELS = ["gpt2", *slow("t5", "llama")]


@pytest.mark.parametrize("name", MODELS)
def test_a_label_that_begins_another_is_learned_and_scored_alike_beside_other_labels(name, request):
    family = FAMILIES[name]
    loaded = load_model(str(request.getfixturevalue(f"tiny_{name}")), family=family)
    prompt = default_prompts(LABELS, pair=False)[1]
    task = TextTask("weather", LABELS, ROWS, ROWS, ROWS, causal_prompt=prompt)
    encoded = encode_task(task, loaded.tokenizer, family=family, max_length=24)
    head = make_task_head(loaded.model, task, label_tokens=encoded.label_tokens, seed=0)
    loaded.model.add_head(0, head)
    inputs, targets = encoded.splits["train"]
    trained = [one for one in loaded.model.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=0.003)
    for _ in range(30):
        loss = torch.nn.functional.cross_entropy(loaded.model(inputs, task=0), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        scores = loaded.model(inputs, task=0)
        assert scores.argmax(1).equal(targets)
        heads = [head, LabelStrings([[7], [8, 9, 10, 11]])] * (len(ROWS) // 2)
        by_row = loaded.model.answer_rows(inputs, heads)
    torch.testing.assert_close(torch.stack(by_row[::2]), scores[::2], rtol=1e-4, atol=1e-4)


def test_only_labels_that_begin_others_are_ended(tiny_gpt2):
    tokenizer = load_model(str(tiny_gpt2), family="causal_lm").tokenizer
    end, words = tokenizer.eos_token_id, dict(zip(LABELS, LABELS, strict=True))
    prompt = Prompt("{text}\n category:", words)
    rain, again, team = label_token_ids(tokenizer, prompt, LABELS, family="causal_lm")
    assert [rain[-1] == end, again[-1] == end, team[-1] == end] == [True, False, False]
    assert again[: len(rain) - 1] == rain[:-1]
    apart = replace(prompt, words=words | {"rain again": "again"})
    plain = label_token_ids(tokenizer, apart, LABELS, family="causal_lm")
    assert plain[0] == rain[:-1]
    tokenizer.eos_token = None
    assert label_token_ids(tokenizer, apart, LABELS, family="causal_lm") == plain
    with pytest.raises(InputError, match="'rain again' begins with that of 'rain', and"):
        label_token_ids(tokenizer, prompt, LABELS, family="causal_lm")


@pytest.mark.parametrize("name", MODELS)
def test_an_export_has_the_ends_of_labels_that_begin_others(name, request, tmp_path):
    folder = tmp_path / "weather"
    folder.mkdir()
    rows = [json.dumps({"text": row.text, "label": LABELS[int(row.label)]}) for row in ROWS]
    for split in ("train", "dev", "test"):
        (folder / f"{split}.jsonl").write_text("\n".join(rows))
    model, family = request.getfixturevalue(f"tiny_{name}"), FAMILIES[name]
    bank = tiny_run(tmp_path, model, [str(folder)], family=family, shots=4) / "bank"
    export_task(bank, "weather", out=tmp_path / "out", format="hf")
    task, tokenizer = load_task(str(folder)), open_bank(bank).loaded.tokenizer
    ids = label_token_ids(tokenizer, task.causal_prompt, task.label_names, family=family)
    record = json.loads((tmp_path / "out" / "task.json").read_text())
    assert record["label_token_ids"] == [list(label) for label in ids]
    begins = record["label_token_ids"][task.label_names.index("rain")]
    assert begins[-1] == tokenizer.eos_token_id
