"""A drafted config says what lies in a folder of data, and runs."""

import json
from pathlib import Path

import pytest
from tiny_runs import QUICK, cl_graft

from cl_graft import InputError
from cl_graft.experiments.compare import compare
from cl_graft.experiments.config import load_config
from cl_graft.experiments.draft import draft_config


def rows(count: int, **columns: list) -> list[dict]:
    return [{key: values[n % len(values)] for key, values in columns.items()} for n in range(count)]


def write_csv(path: Path, found: list[dict]) -> None:
    lines = [",".join(found[0]), *(",".join(f'"{v}"' for v in row.values()) for row in found)]
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    there = tmp_path_factory.mktemp("mine") / "data"
    (there / "tickets").mkdir(parents=True)
    texts = [f"the printer in room {n} is on fire" for n in range(60)]
    reviews = rows(60, text=texts, label=["good", "bad", "good"])
    write_csv(there / "reviews.csv", reviews)
    tickets = rows(40, premise=texts, hypothesis=texts[::-1], label=["0", "1"])
    for split in ("train", "test"):
        lines = "".join(f"{json.dumps(row)}\n" for row in tickets)
        (there / "tickets" / f"{split}.jsonl").write_text(lines)
    write_csv(
        there / "odd.csv",
        rows(60, id=list(range(60)), body=texts, queue=["a", "b"], from_=["x", "y", "z"]),
    )
    write_csv(there / "weather.csv", rows(60, text=texts, degrees=[f"{n}.5" for n in range(60)]))
    (there / "notes.pdf").write_text("%PDF-1.4")
    (there / ".hidden.csv").write_text("text,label\n")
    return there


def test_tasks_columns_labels_and_rows_are_found_and_the_rest_is_named(data):
    draft = draft_config(data)
    found = {task.name: task for task in draft.tasks}
    assert list(found) == ["odd", "reviews", "tickets"]
    assert found["reviews"].labels.keys() == {"good", "bad"}
    assert sum(found["reviews"].rows.values()) == 60
    assert found["reviews"].words == 8
    tickets = found["tickets"].columns
    assert (tickets.text, tickets.text_pair, tickets.label) == ("premise", "hypothesis", "label")
    assert (found["odd"].columns.text, found["odd"].columns.label) == ("body", "queue")
    assert [task.guessed for task in draft.tasks] == [True, False, False]
    assert draft.left_out.keys() == {"notes.pdf", "weather.csv"}
    assert "guessed from what they hold" in draft.text
    assert "# notes.pdf was left out: " in draft.text
    assert "# label_names: [name of 0, name of 1]" in draft.text


def test_a_draft_runs_as_it_is_on_a_small_model(data, tiny_bert, tmp_path):
    path = tmp_path / "stream.yaml"
    path.write_text(draft_config(data).text)
    small = {**QUICK, "model": str(tiny_bert)} | {"shots": 512}
    config = load_config(path, [f"{name}={json.dumps(value)}" for name, value in small.items()])
    assert config.tasks == ["odd", "reviews", "tickets"]
    config = config.model_copy(update={"strategies": ["grafting"]})
    assert len(compare(config, out=tmp_path / "out").cells) == 1


def test_one_file_or_one_folder_of_splits_is_one_task(data):
    for path, name in ((data / "reviews.csv", "reviews"), (data / "tickets", "tickets")):
        draft = draft_config(path)
        assert [task.name for task in draft.tasks] == [name]
        assert draft.left_out == {}


def test_names_of_all_kinds_are_written_so_that_they_are_read_again(tmp_path):
    labels = ["a: b # c", "größe\u2028\x7f"]
    texts = [f"text {n}" for n in range(40)]
    there = tmp_path / "no"
    there.mkdir()
    named = rows(40, **{"on": texts, "label": labels})
    lines = "".join(f"{json.dumps(row)}\n" for row in rows(40, text=texts, label=["x", "y"]))
    (there / "null.jsonl").write_text(lines)
    (there / "b.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in named))
    draft = draft_config(there)
    path = tmp_path / "stream.yaml"
    path.write_text(draft.text)
    config = load_config(path)
    assert config.tasks == [task.name for task in draft.tasks]
    assert "null" in config.tasks


def test_nothing_to_draft_is_said_in_a_sentence(tmp_path):
    with pytest.raises(InputError, match="there is no folder"):
        draft_config(tmp_path / "nowhere")
    with pytest.raises(InputError, match="nothing there is a task: it is empty"):
        draft_config(tmp_path)
    (tmp_path / "notes.md").write_text("a")
    with pytest.raises(InputError, match=r"notes\.md: no file of rows"):
        draft_config(tmp_path)


def test_the_command_shows_what_it_found_and_overwrites_nothing_unasked(data, tmp_path):
    out = tmp_path / "stream.yaml"
    told = cl_graft("init", data, "--out", out)
    assert told.code == 0, told
    for said in ("reviews", "body (guessed)", "premise", "Left out: notes.pdf", "cl-graft compare"):
        assert said in told.out
    refused = cl_graft("init", data, "--out", out)
    assert refused.code == 2
    assert "--force overwrites it" in refused.err
    assert cl_graft("init", data, "--out", out, "--force", "--json").json["config"] == str(out)
