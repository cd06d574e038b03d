"""A bank keeps its bits on the way to a hub and back, and a token stays where it belongs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml
from local_hub import serving
from stored_banks import bank_of, content, same_bank

from cl_graft import GraftBank, InputError
from cl_graft.storage.hub import download_bank, from_pretrained, push_to_hub, save_pretrained

TOKEN = "hf_" + "AbCdEfGhIj" * 3
NAME = "somebody/three-tasks"


@pytest.fixture(scope="module")
def hub():
    with serving(TOKEN) as running:
        yield running


@pytest.fixture
def bank() -> GraftBank:
    whole = bank_of()
    metadata = {
        "label_names": ["no", "yes|maybe"],
        "metric": "accuracy",
        "trained_dev": 0.875,
        "temperature": {"value": 1.5, "rows": 32, "ece_before": 0.071, "ece_after": 0.025},
    }
    entries = [replace(entry, metadata=metadata) for entry in whole.entries]
    base = replace(whole.base, metadata={**whole.base.metadata, "revision": "c" * 40})
    return replace(whole, entries=tuple(entries), base=base)


def test_a_bank_comes_back_from_the_hub_bit_for_bit(bank, hub, tmp_path):
    name, options = "somebody/pinned", {"cache_dir": tmp_path, "endpoint": hub.endpoint}
    shorter = replace(bank, entries=bank.entries[:2])
    first = push_to_hub(shorter, name, token=TOKEN, endpoint=hub.endpoint)
    pushed = push_to_hub(bank, name, token=TOKEN, endpoint=hub.endpoint)
    assert hub.repositories[name].branches["main"] == pushed.revision
    assert pushed.url.endswith(pushed.revision)
    assert same_bank(from_pretrained(name, revision=first.revision, **options), shorter)
    assert same_bank(from_pretrained(name, **options), bank)
    # The layout of the hub's cache: what a revision was is found there without any hub.
    assert (tmp_path / "models--somebody--pinned" / "refs" / "main").is_file()
    offline = {"cache_dir": tmp_path, "local_files_only": True}
    assert same_bank(from_pretrained(name, revision=first.revision, **offline), shorter)


def test_a_push_is_one_commit_and_takes_away_entries_that_went(bank, hub):
    name = "somebody/shrinking"
    push_to_hub(bank, name, token=TOKEN, endpoint=hub.endpoint)
    commits = len(hub.repositories[name].commits)
    shorter = replace(bank, entries=bank.entries[:1])
    push_to_hub(shorter, name, token=TOKEN, endpoint=hub.endpoint)
    assert len(hub.repositories[name].commits) == commits + 1
    entries = [path for path in hub.files(name) if path.startswith(("entries/", "standalone/"))]
    assert [name[:8] + name[24:] for name in entries] == ["entries/-qnli.safetensors"]
    assert ".gitattributes" in hub.files(name)


def test_a_token_lands_in_no_file(bank, hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_pretrained(bank, "saved")
    push_to_hub(bank, NAME, token=TOKEN, endpoint=hub.endpoint)
    download_bank(NAME, cache_dir="cache", token=TOKEN, endpoint=hub.endpoint)
    everything = [*content(tmp_path).values(), *hub.files(NAME).values()]
    assert len(everything) > 10
    assert not any(TOKEN.encode() in data for data in everything)


def test_the_card_says_what_the_bank_is_and_how_to_load_it(bank, hub):
    push_to_hub(bank, NAME, license="apache-2.0", token=TOKEN, endpoint=hub.endpoint)
    _, head, text = hub.files(NAME)["README.md"].decode().split("---\n", 2)
    data = yaml.safe_load(head)
    assert data["base_model"] == "org/model"
    assert data["license"] == "apache-2.0"
    assert data["library_name"] == "cl-graft"
    assert f"`org/model` at revision `{'c' * 40}`" in text
    row = next(line for line in text.splitlines() if line.startswith("| sst2"))
    density = f"{bank.entries[2].region.density:.4%}"
    owned = str(len(bank.entries[2].owned))
    calibration = "7.1 → 2.5 points (temperature 1.5)"
    cells = ["sst2", "no, yes\\|maybe", owned, density, "0.875 accuracy", calibration]
    assert row == f"| {' | '.join(cells)} |"
    assert f"open_bank(download_bank({NAME!r}))" in text


def test_the_card_of_a_bank_without_metadata_says_what_is_not_known(tmp_path):
    save_pretrained(bank_of(), tmp_path / "plain")
    text = (tmp_path / "plain" / "README.md").read_text()
    assert "# plain" in text
    assert 'open_bank(".")' in text
    assert "(no revision recorded)" in text
    assert "**Licence:** not stated" in text


def test_recorded_rows_stay_at_home_if_asked_to(bank, tmp_path):
    assert any(entry.recorded_batch for entry in bank.entries)
    save_pretrained(bank, tmp_path / "bank", recorded_rows=False)
    again = from_pretrained(tmp_path / "bank")
    assert not any(entry.recorded_batch for entry in again.entries)
    kept = tuple(replace(entry, recorded_batch=None) for entry in bank.entries)
    assert same_bank(again, replace(bank, entries=kept))


def test_a_base_that_nobody_else_has_is_not_pushed(bank, hub):
    at_home = replace(bank, base=replace(bank.base, model="/somewhere/checkpoint"))
    with pytest.raises(InputError, match="pass base_model='owner/name'"):
        push_to_hub(at_home, "somebody/lost", token=TOKEN, endpoint=hub.endpoint)
    assert "somebody/lost" not in hub.repositories
    push_to_hub(
        at_home, "somebody/found", base_model="org/model", token=TOKEN, endpoint=hub.endpoint
    )
    everything = b"".join(hub.files("somebody/found").values())
    assert b"/somewhere" not in everything


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("somebody/nothing", {}, "there is no 'somebody/nothing' on the hub"),
        (NAME, {"revision": "v9"}, f"{NAME} on the hub has no revision 'v9'"),
        ("no such folder", {}, "'no such folder' is no folder here, and no name on the hub"),
        ("a/b", {"local_files_only": True}, "the local cache has no copy of 'a/b'"),
    ],
)
def test_what_is_not_there_is_told_in_a_sentence(bank, hub, tmp_path, name, options, message):
    push_to_hub(bank, NAME, token=TOKEN, endpoint=hub.endpoint)
    with pytest.raises(InputError, match=message):
        from_pretrained(name, cache_dir=tmp_path, endpoint=hub.endpoint, **options)
    with pytest.raises(InputError, match=r"refused|does not open it") as told:
        push_to_hub(bank, "somebody/else", token="hf_wrongwrong", endpoint=hub.endpoint)
    assert "hf_wrongwrong" not in str(told.value)
