"""Rivals of a region: LoRA and adapters, each on a copy of the model.

The peers of Tables 6 and 7 of Panigrahi et al., 2023 (https://arxiv.org/abs/2302.06600), and of
Table 1 of Fu et al., 2023 (https://arxiv.org/abs/2211.15583). Their parts and the head are trained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.util import find_spec
from operator import itemgetter
from types import MappingProxyType
from typing import Any, cast

from torch import nn

from cl_graft.errors import InputError
from cl_graft.grafts.hashing import hash_tensors
from cl_graft.grafts.model_state import preserve_parameters, replace_parameters
from cl_graft.lab.baselines.lora import LoRASettings, add_lora_, find_lora
from cl_graft.lab.baselines.own_values import Bottleneck, add_adapter_, add_adapters_, find_adapters
from cl_graft.models import TaskModel, block_stacks
from cl_graft.runtime.seeding import derive, generator
from cl_graft.settings.schedule_of_task import train_candidates
from papers.bench import Bench, Outcome
from papers.measurements import Measurement
from papers.retraining import bitfit, peer_plans
from papers.transfer import elsewhere, pairs

DENSITIES = (1e-4, 5e-4, 1e-3, 3e-3, 1e-2)
"""Of the grafts beside them."""

_LAST_LAYERS = (
    ("attention.output.dense", "output.dense"),
    ("attention.out_lin", "ffn.lin2"),
    ("attn.c_proj", "mlp.c_proj"),
    ("self_attn.out_proj", "fc2"),
    ("self_attn.o_proj", "mlp.down_proj"),
)
"""Last layers of the two halves of a block, before what went in is added: of BERT and RoBERTa,
DistilBERT, GPT-2, OPT and BART, Llama."""

_RATES = (2e-3, 8e-3)
"""AdamW's, where the config has no grid."""


@dataclass(frozen=True)
class Peer:
    """One way to train few parameters that are no coordinates of the model."""

    insert: Callable[[TaskModel, int, int], None]
    parts: Callable[[nn.Module], dict[str, nn.Parameter]]
    sizes: Sequence[int] = ()
    what: str = "size"


def _lora(model: TaskModel, size: int, seed: int, *, layers: str = "usual") -> None:
    if find_spec("peft") is None:
        raise InputError("LoRA needs the package peft: pip install 'cl-graft[peft]'")
    add_lora_(model, LoRASettings(rank=size, alpha=size, layers=layers), seed=seed)


def _two_adapters(model: TaskModel, size: int, seed: int) -> None:
    """Put a bottleneck behind both halves of every block, before what went in is added."""
    draws = generator(seed, "adapters")
    for path in block_stacks(model):
        for block in cast(nn.ModuleList, model.get_submodule(path)):
            inside = dict(block.named_modules())
            ends = next((ends for ends in _LAST_LAYERS if all(end in inside for end in ends)), None)
            if ends is None:
                raise InputError(
                    f"adapters inside blocks need halves that end in one of {_LAST_LAYERS}, and "
                    f"{type(block).__name__} has none of these; put adapters behind blocks"
                )
            for end in ends:
                adapter = Bottleneck(model.hidden_size, size, draws=draws)
                add_adapter_(inside[end], adapter.to(model.device))


def _one_adapter(model: TaskModel, size: int, seed: int) -> None:
    add_adapters_(model, size=size, seed=seed)


PEERS: Mapping[str, Peer] = MappingProxyType(
    {
        "LoRA": Peer(_lora, find_lora, (1, 2, 8), "rank"),
        "Houlsby": Peer(_two_adapters, find_adapters, (1, 2, 16, 64)),
        "Pfeiffer": Peer(_one_adapter, find_adapters, (1, 2, 16, 64)),
    }
)
"""By name: LoRA beside query and value (Hu et al., 2022, https://arxiv.org/abs/2106.09685), as the
shares of Table 6 have it; adapters behind both halves of a block (Houlsby et al., 2019,
https://arxiv.org/abs/1902.00751), one behind each block (after Pfeiffer et al., 2021,
https://arxiv.org/abs/2005.00247)."""

LORA_EVERYWHERE = Peer(partial(_lora, layers="all"), find_lora)
"""LoRA on all linear layers of the blocks, as the SAM paper's code has it."""


def peers_and_densities(bench: Bench) -> Iterator[Measurement]:
    """Compare LoRA and adapters with grafts of growing density (Table 6)."""
    yield from _shares(bench)
    for label, name in enumerate(bench.names):
        for method, x, own in _ways(bench, label):
            answers = own.answers(label)
            yield Measurement(name, method, "score", answers.score, x)
            yield Measurement(name, method, "ECE", answers.ece, x)


def peers_elsewhere(bench: Bench) -> Iterator[Measurement]:
    """Compare them out of distribution (Table 7)."""
    yield from _shares(bench)
    for source, targets in pairs(bench):
        for method, x, own in _ways(bench, source):
            yield from elsewhere(own, source, targets, method, x=x)


def choose_size(bench: Bench, peer: Peer, *, share: float) -> int:
    """Return the size of a peer whose parts are nearest to a share of the graftable weights."""
    one, two = (measure_share(bench, peer, size) for size in (1, 2))
    return max(1, 1 + round((share - one) / (two - one)))  # affine: biases do not grow with it


def measure_share(bench: Bench, peer: Peer, size: int) -> float:
    """Return the share of the graftable weights that a peer's parts are as many as."""
    own = bench.with_parts(lambda model: peer.insert(model, size, bench.seed))
    parts = peer.parts(own.model.task_model)
    return sum(part.numel() for part in parts.values()) / bench.layout.total


@contextmanager
def train_peer(
    bench: Bench, label: int, peer: Peer, *, size: int, plan: Mapping[str, Any], anew: bool = False
) -> Iterator[Bench]:
    """Train a peer's parts and a head on a task, and have a bench that carries them."""
    own = bench.with_parts(lambda model: peer.insert(model, size, bench.seed))
    task = own.task(label)
    parts = {**peer.parts(task.model), **task.head}
    what = hash_tensors(task.to_cache(parts))
    settings = replace(bench.schedule(label), **plan)
    seed = derive(bench.seed, task.content, "peer", f"{settings.lr:g}")

    def make() -> Outcome:
        with preserve_parameters(parts):
            found = task.fine_tune(parts, settings, seed=seed, phase="training")
        return task.to_cache(found.tensors), {"dev": found.dev}

    recipe = {**asdict(settings), "size": size, "what": what}
    kept, _ = bench.get_or_make("peer", task.identity, recipe, make, anew=anew)
    with replace_parameters(parts, task.from_cache(kept, parts)):
        yield own


def _chosen_plan(bench: Bench, label: int, peer: Peer) -> Mapping[str, Any]:
    """Return the plan that is best on dev for a peer's smallest size, for all of its sizes."""

    def dev(plan: Mapping[str, Any]) -> float:
        with train_peer(bench, label, peer, size=peer.sizes[0], plan=plan) as own:
            return own.answers(label, split="valid").score

    plan, _ = max(train_candidates(peer_plans(bench, _RATES), dev), key=itemgetter(1))
    return plan


def _ways(bench: Bench, label: int) -> Iterator[tuple[str, float | None, Bench]]:
    """Go through fine-tuning, grafts and peers, each as a bench that carries it."""
    run, task = bench.dense(label), bench.task(label)
    with replace_parameters(task.parameters, run.tuned), replace_parameters(task.head, run.head):
        yield "fine-tuning", None, bench
    depth = bench.size(DENSITIES[-1])
    ranking = bench.ranking(label, str(bench.config.grafting.localizer), dense=run, depth=depth)
    for density in DENSITIES:
        graft = bench.cut(run, bench.first(ranking, density))
        with bench.apply_graft(label, graft, run.head):
            yield "grafting", density, bench
    values, head = bitfit(bench, label)
    with bench.apply_graft(label, values, head):
        yield "BitFit", None, bench
    for name, peer in PEERS.items():
        plan = _chosen_plan(bench, label, peer)
        for size in peer.sizes:
            with train_peer(bench, label, peer, size=size, plan=plan) as own:
                yield f"{name}, {peer.what} {size}", None, own


def _shares(bench: Bench) -> Iterator[Measurement]:
    """Say which share of the graftable weights every method trains.

    It puts every peer into a copy of the model, which shows at once whether that can be done.
    """
    yield Measurement("any", "fine-tuning", "share tuned", 1.0)
    yield Measurement("any", "BitFit", "share tuned", bench.biases(0).density)
    for name, peer in PEERS.items():
        for size in peer.sizes:
            share = measure_share(bench, peer, size)
            yield Measurement("any", f"{name}, {peer.what} {size}", "share tuned", share)
