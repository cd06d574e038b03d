"""Engines: the cells of a comparison on many processes and machines at once.

The machines share a folder, the comparison's. Everything that a cell leaves is there, so a cell
whose process or machine died goes on where its last checkpoint was, on any other.
"""
