"""Text tasks written by grammars: unlimited rows from a seed, nothing to download.

Each grammar is made so that the words alone mislead (negation, roles, similes, distractors), and
several share a vocabulary while asking for different readings of it. The rows are generated;
accuracy on them says nothing about text that people wrote.
"""

from cl_graft.data.synthetic.built_in_tasks import GENERATED, find_generated, generate
from cl_graft.data.synthetic.generated_task import GeneratedTask, draw
from cl_graft.data.synthetic.long_streams import expand_range

__all__ = [
    "GENERATED",
    "GeneratedTask",
    "draw",
    "expand_range",
    "find_generated",
    "generate",
]
