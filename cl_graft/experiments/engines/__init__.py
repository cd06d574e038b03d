"""Engines: the runs of a comparison on many processes and machines at once.

The machines share a folder, the comparison's. Everything that a run leaves is there, so a run
whose process or machine died goes on where its last checkpoint was, on any other.
"""
