"""Engines: the runs of a comparison on many processes and machines at once.

The machines share the folder of the comparison. Everything that a run writes is there, so if its
process or machine dies, the run resumes from its last checkpoint on any other machine.
"""
