"""Methods of Avalanche that cannot run with the versions that this package supports."""

from dataclasses import dataclass

from cl_graft.strategies.method import Family, Method
from cl_graft.strategies.registry import STRATEGIES

__all__: list[str] = []


@dataclass(frozen=True)
class _Broken:
    """A method that cannot run, and so has no settings."""


def _register(name: str, family: Family, *, source: str, reason: str) -> None:
    method = Method(name=name, kind=_Broken, family=family, source=source, adds="–", broken=reason)
    STRATEGIES.register(name, method)


_register(
    "bic",
    "rehearsal",
    source="Wu et al., 2019, https://arxiv.org/abs/1905.13260; Avalanche's BiC",
    reason="Avalanche 0.6's BiC passes MultiStepLR an argument that torch has removed",
)
_register(
    "icarl",
    "rehearsal",
    source="Rebuffi et al., 2017, https://arxiv.org/abs/1611.07725; Avalanche's ICaRL",
    reason="Avalanche 0.6's ICaRL needs a benchmark of its older class-incremental kind",
)
_register(
    "gss",
    "rehearsal",
    source="Aljundi et al., 2019, https://arxiv.org/abs/1903.08671; Avalanche's GSS_greedy",
    reason="Avalanche 0.6's GSS_greedy keeps inputs as floats, which are no token ids, and knows "
    "no task labels",
)
_register(
    "avalanche_packnet",
    "isolation",
    source="Mallya and Lazebnik, 2018, https://arxiv.org/abs/1711.05769; Avalanche's PackNet",
    reason="Avalanche 0.6's PackNet refuses modules with parameters other than Linear and "
    "convolutions: a transformer's embeddings and LayerNorms",
)
