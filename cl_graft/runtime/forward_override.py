"""A temporary forward for a module, which copies of the module do not take along.

A function that is put on ``module.forward`` goes along into every copy and computes there with the
weights of the original. So the module gets a subclass of its own class, which calls the function.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

from torch import nn

# Attributes of a module in a block: the other function, and a forward of the instance's own.
_OTHER, _OWN = "_other_forward", "_own_forward"


@contextmanager
def override_forward(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Let a module compute by another function for a `with` block; its hooks run as before.

    Of nested blocks the innermost function is called, with the module and its arguments.
    """
    state = vars(module)
    before = {key: state[key] for key in (_OTHER, _OWN) if key in state}
    set_on_instance = state.pop("forward", None)
    if set_on_instance is not None:
        state[_OWN] = set_on_instance
    state[_OTHER] = forward
    module.__class__ = _subclass(original_class(module))
    try:
        yield
    finally:
        for key in (_OTHER, _OWN):
            state.pop(key, None)
        state.update(before)
        if set_on_instance is not None:
            state["forward"] = set_on_instance
        if _OTHER not in before:
            module.__class__ = original_class(module)


def current_forward(module: nn.Module) -> Callable[..., Any]:
    """Return what the module computes now, which a later `override_forward` does not change."""
    state = vars(module)
    if "forward" in state or _OTHER not in state:
        return module.forward
    return partial(state[_OTHER], module)


def has_forward_override(module: nn.Module) -> bool:
    """Tell whether a module is in a block of `override_forward`."""
    return _OTHER in vars(module)


def original_class(module: nn.Module) -> type[nn.Module]:
    """Return the class of a module, in a block of `override_forward` the one it has outside."""
    kind = type(module)
    return kind.__base__ if kind.__dict__.get("_stands_in") else kind  # pyright: ignore


@cache
def _subclass(kind: type[nn.Module]) -> type[nn.Module]:
    """Make the class of modules of a kind that compute by another function."""

    def forward(self: nn.Module, *args: Any, **settings: Any) -> Any:
        # A bound method may be kept and called after the block, as accelerate's hooks do.
        other = getattr(self, _OTHER, None)
        if other is None:
            return kind.forward(self, *args, **settings)
        return other(self, *args, **settings)

    def reduce(self: nn.Module, protocol: Any) -> Any:
        # From protocol 2 on, pickle insists on making an object of the subclass.
        return _plain(self, kind).__reduce_ex__(min(protocol, 1))

    members = {
        "_stands_in": True,
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
        "forward": forward,
        "__reduce_ex__": reduce,
    }
    if hasattr(kind, "__deepcopy__"):
        members["__deepcopy__"] = lambda self, memo: _plain(self, kind).__deepcopy__(memo)
    return types.new_class(kind.__name__, (kind,), exec_body=lambda space: space.update(members))


def _plain(module: nn.Module, kind: type[nn.Module]) -> Any:
    """Return a module of the kind that holds the same objects and has its own forward."""
    state = dict(vars(module))
    del state[_OTHER]
    if _OWN in state:
        state.setdefault("forward", state.pop(_OWN))
    plain = kind.__new__(kind)
    vars(plain).update(state)
    return plain
