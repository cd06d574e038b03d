"""The check of a model folder: sizes that its config names, compared with its files.

A config is a few lines of text: one number in it makes a model that is never done. What is compared
is cheap and rough, so that no real checkpoint is refused; who wants to be sure takes models from
where they trust.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cl_graft.errors import InputError, first_line
from cl_graft.models.gguf_file import count_tensors

_MOST_JSON_BYTES = 200_000_000
_LAYERS = re.compile(r"layer|depth|blocks$")
_WIDTHS = ("hidden_size", "n_embd", "d_model", "dim")
_SIZE = re.compile(r"layer|depth|size|dim|heads?$|embd|embeddings|positions|ctx|experts|groups|d_")
_FREE_LAYERS = 100
_FREE_BYTES = 10_000_000
_BYTES_WITHOUT_WEIGHTS = 10**12
_LAYERS_WITHOUT_WEIGHTS = 1000
_WEIGHTS = (".safetensors", ".bin", ".pt", ".ckpt", ".h5", ".msgpack")
_PARAMETERS_A_BYTE = 8
_FREE_IDS = 1_000_000
_IDS_A_TOKEN = 4


def check_model_folder(folder: Path, *, name: str) -> None:
    """Refuse a config or a tokenizer whose sizes its folder's files cannot have.

    - A number of layers beyond the number of tensors in the files (or, where these are no
      safetensors, one for each 100 kB), and beyond 100.
    - Layers times squared width beyond 8 parameters a byte, and any other size of the config beyond
      the number of bytes; either has 10 MB free, for tiny models. A folder without weights, of
      which memory can be planned, counts as a terabyte and 1,000 layers.
    - Token ids far beyond the number of tokens in `tokenizer.json`.
    """
    config = _read(folder / "config.json", name)
    _check_config(config, folder, name)
    if (folder / "tokenizer.json").is_file():
        _check_tokenizer(_read(folder / "tokenizer.json", name), name)


def _read(path: Path, name: str) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MOST_JSON_BYTES:
            raise InputError(f"{name!r}: its {path.name} has more than {_MOST_JSON_BYTES:,} bytes")
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{name!r}: cannot read its {path.name}: {error.strerror}") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{name!r}: cannot read its {path.name}: {first_line(error)}") from None
    if not isinstance(found, dict):
        raise InputError(f"{name!r}: cannot read its {path.name}: expected a JSON object")
    return found


def _check_config(config: Mapping[str, Any], folder: Path, name: str) -> None:
    files = [path for path in folder.iterdir() if path.is_file()]
    if any(path.suffix in _WEIGHTS for path in files):
        size = sum(path.stat().st_size for path in files) + _FREE_BYTES
        tensors = _count_tensors(folder)
        most_layers = _FREE_LAYERS + (size // 100_000 if tensors is None else tensors)
    else:
        size, most_layers = _BYTES_WITHOUT_WEIGHTS, _LAYERS_WITHOUT_WEIGHTS
    _check_sizes(config, name, "config.json", size=size, most_layers=most_layers)


def check_model_sizes(config: Mapping[str, Any], gguf: Path, *, name: str) -> None:
    """Refuse a config whose sizes its GGUF file cannot have, by the rules of a folder's."""
    size = gguf.stat().st_size + _FREE_BYTES
    most_layers = _FREE_LAYERS + count_tensors(gguf, name=name)
    _check_sizes(config, name, "header", size=size, most_layers=most_layers)


def _check_sizes(
    config: Mapping[str, Any], name: str, file: str, *, size: int, most_layers: int
) -> None:
    for part in _walk_objects(config):
        numbers = {key: value for key, value in part.items() if type(value) is int}
        layers = {key: value for key, value in numbers.items() if _LAYERS.search(key)}
        for key, value in layers.items():
            if value > most_layers:
                raise _make_error(name, file, key, value, f"its files allow for {most_layers:,}")
        depth = max(layers.values(), default=1)
        for key in _WIDTHS:
            if depth * numbers.get(key, 0) ** 2 > _PARAMETERS_A_BYTE * size:
                raise _make_error(
                    name, file, key, numbers[key], f"too wide for the {size:,} bytes of its files"
                )
        for key, value in numbers.items():
            if _SIZE.search(key) and value > size:
                raise _make_error(name, file, key, value, f"its files have {size:,} bytes")


def _count_tensors(folder: Path) -> int | None:
    """Return how many tensors the safetensors of a folder hold; None if there are none."""
    from safetensors import SafetensorError, safe_open

    count = None
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, "pt") as file:
                count = (count or 0) + len(file.keys())
        except (SafetensorError, OSError):
            # transformers says what is wrong with the file when it reads the weights.
            return None
    return count


def _check_tokenizer(tokenizer: Mapping[str, Any], name: str) -> None:
    model = tokenizer.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    own = list(vocabulary.values()) if isinstance(vocabulary, dict) else vocabulary or []
    added = [token for token in tokenizer.get("added_tokens") or [] if isinstance(token, dict)]
    ids = [*own, *(token.get("id") for token in added)]
    highest = max((each for each in ids if type(each) is int), default=0)
    if highest > _FREE_IDS + _IDS_A_TOKEN * len(ids):
        raise InputError(
            f"{name!r}: its tokenizer.json has a token of the id {highest:,} but {len(ids):,} "
            "tokens; it is damaged"
        )


def _walk_objects(tree: object) -> Iterator[dict[str, Any]]:
    """Walk over all objects of a JSON document, in its order."""
    left = [tree]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            yield value
            left.extend(reversed(list(value.values())))
        elif isinstance(value, list):
            left.extend(reversed(value))


def _make_error(name: str, file: str, key: str, value: int, why: str) -> InputError:
    return InputError(
        f"{name!r}: {key} in its {file} is {value:,}, {why}; the {file.removesuffix('.json')} is "
        "damaged, or that of another model"
    )
