"""Precisions that a processor computes slowly are told."""

import pytest
import torch

from cl_graft.runtime.devices import explain_slow_precision

CPU = torch.device("cpu")


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_precision_without_instructions_is_told_on_a_processor_alone(precision):
    has = getattr(torch.ops.mkldnn, f"_is_mkldnn_{precision}_supported")()
    told = explain_slow_precision(precision, CPU)
    assert (told == "") == has
    assert has or precision in told
    assert explain_slow_precision(precision, torch.device("cuda")) == ""
    assert explain_slow_precision("fp32", CPU) == ""
