"""SI: a penalty by how much each weight lowered the loss on its way."""

from __future__ import annotations

from avalanche.training.plugins import SynapticIntelligencePlugin
from avalanche.training.templates import SupervisedTemplate

from cl_graft.strategies import StrategyInputs, count_bytes, find_plugin, register_strategy, setting
from cl_graft.strategies.methods.penalties.ewc import PENALTY_WEIGHT

__all__ = ["SynapticIntelligence"]


@register_strategy(
    "si",
    family="penalty",
    source="Zenke et al., 2017, https://arxiv.org/abs/1703.04200; Avalanche's SynapticIntelligence",
    adds="the first task three copies of the trained weights, others nothing",
)
class SynapticIntelligence:
    """Hold weights near their latest values, by their share in the fall of the loss."""

    si_lambda: float = setting(100.0, PENALTY_WEIGHT, least=0, grid=(1.0, 10.0, 100.0, 1000.0))
    eps: float = setting(1e-7, "Damping of importances.", least=1e-30)

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with Avalanche's `SynapticIntelligencePlugin`."""
        return inputs.naive(SynapticIntelligencePlugin(self.si_lambda, eps=self.eps))

    @staticmethod
    def storage_bytes(strategy: SupervisedTemplate) -> int:
        """Return the bytes of weights, importances and trajectories."""
        plugin = find_plugin(strategy, SynapticIntelligencePlugin)
        # The other tensors of `syn_data` are made anew within a task.
        return count_bytes([plugin.ewc_data, plugin.syn_data["cum_trajectory"]])
