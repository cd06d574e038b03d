"""The laboratory: experiments, their results, reports and figures.

No module outside imports it. `cl_graft`, `cli.app` and `strategies.registry` load it by its name.
"""
