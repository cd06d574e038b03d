"""The methods of this package, one a file; importing it registers them, in the order of tables."""

from importlib import import_module

_MODULES = (
    *("grafting.grafting", "grafting.lt_sft", "grafting.ablations"),
    *("grafting.by_prototypes", "grafting.by_discriminant"),
    *("grafting.by_entropy", "grafting.by_energy"),
    "merging",
    *("bounds.naive", "bounds.from_scratch", "bounds.cumulative", "bounds.joint"),
    "bounds.independent",
    *("penalties.ewc", "penalties.ewc_online", "penalties.si", "penalties.mas"),
    "penalties.rwalk",
    *("distillation.lwf", "distillation.lfl"),
    *("rehearsal.replay", "rehearsal.gdumb", "rehearsal.agem", "rehearsal.gem"),
    *("rehearsal.der", "rehearsal.er_ace", "rehearsal.mir", "rehearsal.cope"),
    *("isolation.bitfit", "isolation.adapters", "isolation.prompt_tuning"),
    *("isolation.lora", "isolation.ia3", "bounds.sequential_lora", "penalties.o_lora"),
    *("isolation.packnet", "isolation.piggyback", "isolation.supsup", "isolation.wsn"),
    "broken",
)

for _name in _MODULES:
    import_module(f"{__name__}.{_name}")
