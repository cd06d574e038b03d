"""The methods to compare with, a family a file; the import registers them, in tables' order."""

from importlib import import_module

for _name in (
    *("routing", "merging", "bounds", "penalties"),
    *("rehearsal", "own_values", "lora", "masks"),
):
    import_module(f"{__name__}.{_name}")
