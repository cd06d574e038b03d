"""Engines: the runs of a comparison on many processes and machines, which share its folder.

If the process or machine of a run dies, the run resumes from its last checkpoint on any other.
"""
