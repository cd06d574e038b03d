"""Banks on the Hugging Face hub: save, push, download and read them.

One push is one commit. A token is used for the requests and written nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypedDict, Unpack

from huggingface_hub import (
    CommitOperationAdd,
    CommitOperationDelete,
    HfApi,
    ModelCardData,
    snapshot_download,
)
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import validate_repo_id

from cl_graft.errors import InputError
from cl_graft.grafts.bank import Entry, GraftBank
from cl_graft.runtime.escaping import for_markdown, for_markdown_code
from cl_graft.storage import load_bank, save_bank
from cl_graft.storage.files import replace_file

_FOLDERS = ("entries/", "standalone/")
_FILES = ["bank.json", "README.md", *(f"{folder}*" for folder in _FOLDERS)]


@dataclass(frozen=True)
class Pushed:
    """The commit of a pushed bank: its repository, its hash, which pins the bank, and its page."""

    repo_id: str
    revision: str
    url: str


def save_pretrained(
    bank: GraftBank,
    folder: Path | str,
    *,
    name: str | None = None,
    base_model: str | None = None,
    license: str | None = None,
    recorded_rows: bool = True,
) -> None:
    """Write a bank and its model card to a folder.

    Args:
        bank: The bank.
        folder: A new folder, or one that holds this bank or its first entries.
        name: Name of the bank on the card; None means the folder's name.
        base_model: The name under which others find the base; None means the recorded one.
        license: The bank's licence, as the hub spells it.
        recorded_rows: Whether to write the rows (token ids of texts of each task) whose logits
            `cl-graft verify` compares.

    Raises:
        BankError: If the folder holds another bank.
    """
    folder = Path(folder)
    shared = replace(bank, base=replace(bank.base, model=base_model or bank.base.model))
    if not recorded_rows:
        stripped = tuple(replace(entry, recorded_batch=None) for entry in bank.entries)
        shared = replace(shared, entries=stripped)
    folder.mkdir(parents=True, exist_ok=True)
    save_bank(shared, folder)
    card = model_card(shared, name=name or folder.absolute().name, license=license)
    replace_file(folder / "README.md", card.encode())


def push_to_hub(
    bank: GraftBank,
    repo_id: str,
    *,
    base_model: str | None = None,
    license: str | None = None,
    recorded_rows: bool = True,
    private: bool | None = None,
    branch: str | None = None,
    message: str = "Push a bank of grafts",
    token: str | bool | None = None,
    endpoint: str | None = None,
) -> Pushed:
    """Put a bank and its model card on the hub, in one commit.

    The repository is made if it does not exist; files of entries that the bank does not have are
    removed from it.

    Args:
        bank: The bank.
        repo_id: Owner and name.
        base_model: As in `save_pretrained`; needed where the bank recorded a folder.
        license: The bank's licence, as the hub spells it.
        recorded_rows: As in `save_pretrained`.
        private: Whether a new repository is private; None leaves it to the owner's settings.
        branch: The branch; None means the main one.
        message: The commit's message.
        token: Access token of the hub; None means that of the user who is logged in.
        endpoint: Address of a hub; None means the public one.

    Raises:
        InputError: If the base has no name on the hub, or the hub refuses.
    """
    if not is_hub_name(base_model or bank.base.model):
        raise InputError(
            f"the bank's base is recorded as {bank.base.model!r}, which others cannot load from "
            "the hub; pass base_model='owner/name'"
        )
    api = HfApi(endpoint=endpoint, token=token)
    card = {"base_model": base_model, "license": license, "recorded_rows": recorded_rows}
    with _explain_hub_errors(repo_id), TemporaryDirectory() as folder:
        save_pretrained(bank, folder, name=repo_id, **card)
        api.create_repo(repo_id, private=private, exist_ok=True)
        if branch is not None:
            api.create_branch(repo_id, branch=branch, exist_ok=True)
        files = [path for path in sorted(Path(folder).rglob("[!.]*")) if path.is_file()]
        added = {path.relative_to(folder).as_posix(): path for path in files}
        there = api.list_repo_files(repo_id, revision=branch)
        stale = [name for name in there if name.startswith(_FOLDERS) and name not in added]
        operations = [
            *(CommitOperationAdd(name, path) for name, path in added.items()),
            *(CommitOperationDelete(name) for name in stale),
        ]
        # `upload_folder` would make several commits of many files.
        commit = api.create_commit(repo_id, operations, commit_message=message, revision=branch)
    return Pushed(repo_id, commit.oid, commit.commit_url)


class HubOptions(TypedDict, total=False):
    """How a bank is fetched from the hub.

    Attributes:
        revision: A commit, a tag or a branch; a commit gives the same bits for ever.
        cache_dir: The local cache; None means that of the hub's client.
        local_files_only: Whether to use the cache alone, without the network.
        token: Access token of the hub; None means that of the user who is logged in.
        endpoint: Address of a hub; None means the public one.
    """

    revision: str | None
    cache_dir: Path | str | None
    local_files_only: bool
    token: str | bool | None
    endpoint: str | None


def download_bank(repo_id: str, **options: Unpack[HubOptions]) -> Path:
    """Fetch a bank from the hub into the local cache, and return its folder there.

    Raises:
        InputError: If there is no such repository or revision, or the hub cannot be reached and
            the cache has no copy.
    """
    with _explain_hub_errors(repo_id, options.get("revision")):
        return Path(snapshot_download(repo_id, allow_patterns=_FILES, **options))


def from_pretrained(name: Path | str, **options: Unpack[HubOptions]) -> GraftBank:
    """Read a bank from a folder, or from the hub where there is no such folder.

    Raises:
        InputError: As `download_bank`, or if a folder is to have a revision.
        BankError: If the bank is damaged.
    """
    if not Path(name).is_dir():
        return load_bank(download_bank(str(name), **options))
    if (revision := options.get("revision")) is not None:
        raise InputError(f"{name} is a folder, which has no revision {revision!r}")
    return load_bank(name)


@contextmanager
def _explain_hub_errors(repo_id: str, revision: str | None = None) -> Iterator[None]:
    """Turn the errors of the hub's client in a `with` block into `InputError` with one sentence."""
    try:
        yield
    except RevisionNotFoundError as error:
        raise InputError(f"{repo_id} on the hub has no revision {revision!r}") from error
    except RepositoryNotFoundError as error:
        raise InputError(
            f"there is no {repo_id!r} on the hub, or it is private and the token does not open it"
        ) from error
    except HFValidationError as error:
        raise InputError(
            f"{repo_id!r} is no folder here, and no name on the hub (owner/name)"
        ) from error
    except LocalEntryNotFoundError as error:
        at = f" at {revision!r}" if revision else ""
        raise InputError(
            f"the local cache has no copy of {repo_id!r}{at}, and the hub was not asked or did not "
            "answer"
        ) from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        raise InputError(
            f"the hub refused {repo_id!r} (HTTP {status}): "
            f"{error.server_message or 'no reason given'}"
        ) from error


def model_card(bank: GraftBank, *, name: str, license: str | None = None) -> str:
    """Write the model card of a bank that is called `name` on the hub, with the hub's metadata."""
    base, revision = bank.base, bank.base.metadata.get("revision")
    on_hub = is_hub_name(base.model)
    data = ModelCardData(
        base_model=base.model if on_hub else None,
        library_name="cl-graft",
        license=license,
        tags=["grafting", "continual-learning", "sparse-fine-tuning"],
    )
    pinned = "" if revision or not on_hub else " (no revision recorded)"
    if revision:
        pinned = f" at revision {for_markdown_code(str(revision))}"
    rows = "\n".join([*map(_row, bank.entries), *_what_tasks_build_on(bank)])
    return f"""---
{data.to_yaml()}
---

# {for_markdown(name)}

{len(bank)} text task{"" if len(bank) == 1 else "s"} of one frozen language model, as grafts: each \
sets a small region of weights to its own values, and is answered with the bits that it was \
learned with ([Panigrahi et al., 2023](https://arxiv.org/abs/2302.06600)).

- **Base model:** {for_markdown_code(base.model)}{pinned}, {base.dtype}; \
fingerprint {for_markdown_code(base.fingerprint)}, checked on loading
- **Mode:** {_describe_mode(bank)}
- **Coordinates:** {len(bank.owned()):,} of {bank.layout.total:,} graftable ones
- **Licence:** {for_markdown(license or "not stated")}; that of the base model applies beside it

## Tasks

| task | labels | coordinates | density | dev | ECE, before and after calibration |
| --- | --- | --- | --- | --- | --- |
{rows}

Dev rows chose among the values of a training, and the temperature was fitted on them: scores on \
other rows may be lower.

## How to load it

```python
from cl_graft import open_bank
{_show_use(bank, name)}
```
"""


def is_hub_name(name: str) -> bool:
    """Tell whether a name can be one on the hub: an owner and a name."""
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return name.count("/") == 1


def _describe_mode(bank: GraftBank) -> str:
    if bank.mode == "isolated":
        return "isolated; a task is answered by its own graft alone"
    others = "all tasks before it" if bank.builds_by_mode else "the tasks that it builds on"
    return f"prefix; a task is answered by its graft and those of {others}"


def _what_tasks_build_on(bank: GraftBank) -> list[str]:
    """Say which tasks build on others, where these are not all before them."""
    if bank.builds_by_mode:
        return []
    lines = []
    for position, entry in enumerate(bank.entries):
        names = [for_markdown(bank.entries[below].task) for below in bank.builds_on(position)]
        lines.append(f"- {for_markdown(entry.task)} builds on {', '.join(names) or 'the base'}")
    return ["", *lines]


def _row(entry: Entry) -> str:
    metadata: Mapping[str, Any] = entry.metadata
    names = metadata.get("label_names")
    labels = ", ".join(map(str, names)) or "a number" if isinstance(names, list) else "not recorded"
    score, scaling, calibration = metadata.get("trained_dev"), metadata.get("temperature"), "–"
    if isinstance(scaling, Mapping):
        before, after = 100 * scaling["ece_before"], 100 * scaling["ece_after"]
        calibration = f"{before:.1f} → {after:.1f} points (temperature {scaling['value']:.3g})"
    cells = [
        entry.task,
        labels,
        f"{len(entry.owned):,}",
        f"{entry.density:.4%}",
        f"{score:.3f} {metadata.get('metric', '')}".strip() if score is not None else "–",
        calibration,
    ]
    return f"| {' | '.join(map(for_markdown, cells))} |"


def _show_use(bank: GraftBank, name: str) -> str:
    """Return the lines of Python that open the bank and ask its first task."""
    lines = ["", 'bank = open_bank(".")  # the folder of this file']
    if is_hub_name(name):
        lines = [
            "from cl_graft.storage.hub import download_bank",
            "",
            f'bank = open_bank(download_bank({name!r}))  # revision="…" pins a commit',
        ]
    if bank.entries:
        text = '("A text.", "Another.")' if bank.entries[0].metadata.get("pair") else '"A text."'
        lines.append(f"answer = bank.predict({text}, task={bank.entries[0].task!r})")
    return "\n".join(lines)
