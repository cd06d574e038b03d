"""The check that a model has the weights of a bank's base, before anything is written into it.

`banks/base_model_check.py` compares config and tokenizer, too, of a model that was loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor, nn

from cl_graft.errors import WrongBase
from cl_graft.grafts.bank import BaseIdentity, GraftBank
from cl_graft.grafts.graft import extract
from cl_graft.grafts.hashing import fingerprint_weights, model_sha256


def identify(model: nn.Module, *, heads: Sequence[str], dtype: str) -> BaseIdentity:
    """Describe a model at its base that has no tokenizer, for a new bank of values in `dtype`."""
    weights = model_sha256(model, exclude=heads)
    metadata = {"weights_sha256": weights, "heads": list(heads)}
    return BaseIdentity(fingerprint_weights(weights), type(model).__name__, dtype, metadata)


def check_base(model: nn.Module, bank: GraftBank) -> None:
    """Refuse a model whose weights outside the heads are not those of a bank's base.

    A bank that records no hash of them is not checked.
    """
    recorded = bank.base.weights_sha256
    if not recorded or recorded == model_sha256(model, exclude=bank.base.heads):
        return
    carried = find_carried(model, bank)
    reason = (
        "its weights, or parameters or buffers that are not graftable (embeddings, the running "
        "statistics of BatchNorm), are others; load the base as it was when the bank's first task "
        "was learned, in the same dtype"
    )
    if carried is not None:
        reason = (
            f"it carries the values of entry {carried} ({bank.entries[carried].task!r}), as a "
            "model does after training, and the base's values under them are not known in this "
            "process; load the base again, or go on with the strategy that trained the model"
        )
    raise WrongBase(f"the model is not the base of the bank ({bank.base.model!r}): {reason}")


class TensorVersions:
    """Counts of the writes into each tensor of a model, which cheaply show whether it changed.

    Torch counts in-place writes, but not those through ``tensor.data``; a tensor that is replaced
    or moved has another address.
    """

    def __init__(self, model: nn.Module, *, exclude: Sequence[str]) -> None:
        prefixes = tuple(f"{path}." if path else "" for path in exclude)
        self._slots = [
            (owner, key, tensor)
            for path, module in model.named_modules()
            for owner in (module._parameters, module._buffers)
            for key, tensor in owner.items()
            if tensor is not None and not f"{path}.{key}".lstrip(".").startswith(prefixes)
        ]
        tensors = [tensor for _, _, tensor in self._slots]
        self._places = [tensor.data_ptr() for tensor in tensors]
        # Torch does not count writes into tensors that were made in inference mode.
        self._counted = [tensor for tensor in tensors if not tensor.is_inference()]
        self._versions = self._now()

    def changed(self) -> bool:
        """Tell whether a tensor was moved, or written into since it was last noted."""
        is_replaced = any(owner.get(key) is not tensor for owner, key, tensor in self._slots)
        places = [tensor.data_ptr() for _, _, tensor in self._slots]
        return is_replaced or places != self._places or self._versions != self._now()

    def note(self, some: Iterable[Tensor] | None = None) -> None:
        """Take what was written into some tensors so far, None means all, for unchanged."""
        now = self._now()
        if some is not None:
            chosen = {id(tensor) for tensor in some}
            now = [
                new if id(tensor) in chosen else old
                for old, new, tensor in zip(self._versions, now, self._counted, strict=True)
            ]
        self._versions = now

    def _now(self) -> list[int]:
        return [tensor._version for tensor in self._counted]


def find_carried(model: nn.Module, bank: GraftBank) -> int | None:
    """Return the latest entry whose values all stand in the model; None if there is none."""
    for position in reversed(range(len(bank))):
        owned = bank.entries[position].owned
        if len(owned) and extract(model, owned.region).same_bits(owned):
            return position
    return None
