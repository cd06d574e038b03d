"""The methods to compare with, a family a file; the import registers them, in tables' order."""

from importlib import import_module

_FAMILIES = (
    *("routing", "merging", "bounds", "penalties", "distillation", "rehearsal"),
    *("own_values", "adapters", "prompt_tuning", "lora", "ia3", "packnet", "masks"),
)

for _name in _FAMILIES:
    import_module(f"{__name__}.{_name}")
