"""A process that is forked after torch has computed with several threads."""

import os

import pytest
from warm_processes import printed_by

FORK = """
import os, torch
import cl_graft.runtime.threads
torch.set_num_threads(2)
x = torch.randn(600, 600)
x @ x
if not (child := os.fork()):
    x @ x
    os._exit(torch.get_num_threads() + 40)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_computes_with_one_thread_and_does_not_hang():
    assert printed_by(FORK, imported="torch").strip() == "41"
