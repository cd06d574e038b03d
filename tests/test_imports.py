"""Imports inside cl_graft go one way, and importing the package stays cheap."""

import ast
import graphlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "cl_graft"

# The folders from the lowest to the highest: a module imports from its own and those before it.
FOLDERS = (
    "errors",
    "runtime",
    "grafts",
    "storage",
    "training",
    "localization",
    "inference",
    "models",
    "metrics",
    "kinds",
    "data",
    "strategies",
    "settings",
    "banks",
    "integrations",
    "cli",
    "lab",
    "lab.figures",
    "lab.baselines",
    "lab.results",
    "lab.reporting",
    "lab.experiments",
    "lab.commands",
)

# What a folder or a module may import from outside the standard library.
OUTSIDE: dict[str, set[str]] = {
    "errors": set(),
    "runtime": {"torch", "numpy", "pydantic"},
    "grafts": {"torch", "numpy"},
    "storage": {"torch", "numpy", "filelock", "huggingface_hub", "pydantic", "safetensors"},
    "training": {"torch", "pydantic"},
    "localization": {"torch", "pydantic", "pydantic_core"},
    "inference": {"torch", "numpy"},
    "models": {"torch", "huggingface_hub", "packaging", "safetensors", "transformers"},
    "data": {
        *("torch", "charset_normalizer", "datasets", "huggingface_hub", "pandas", "pyarrow"),
        *("pydantic", "transformers", "yaml"),
    },
    "metrics": {"torch", "rouge_score", "sacrebleu", "scipy", "seqeval", "torchmetrics"},
    "kinds": {"torch", "pydantic", "seqeval", "transformers"},
    "strategies": {"torch", "avalanche", "matplotlib", "tensorboard", "transformers"},
    "lab.baselines": {"torch", "avalanche", "transformers"},
    "lab.baselines.lora": {"torch", "avalanche", "peft", "transformers"},
    "lab": set(),
    "lab.figures": {"matplotlib", "numpy"},
    "lab.results": {"torch", "matplotlib", "pandas", "pydantic"},
    "lab.reporting": {"jinja2", "matplotlib", "pydantic"},
    "lab.experiments": {
        *("torch", "avalanche", "packaging", "pydantic", "pydantic_core", "transformers", "yaml")
    },
    "lab.experiments.engines": {"ray", "submitit", "torch"},
    "settings": {"torch", "avalanche", "pydantic", "pydantic_core", "yaml"},
    "banks": {"torch", "avalanche"},
    "integrations": {"torch", "numpy", "peft", "safetensors", "scipy", "transformers"},
    "lab.commands": {"rich", "typer"},
    "cli": {"rich", "typer"},
}

LARGEST_FOLDER = 26

PLACE = {folder: order for order, folder in enumerate(FOLDERS)}


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Dotted names under cl_graft with their syntax trees; cl_graft itself is left out."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name:
            yield name, ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


MODULES = dict(modules())


def imported(name: str, nodes: Iterator[ast.AST]) -> Iterator[str]:
    """Full dotted names that these nodes of the module `name` import."""
    is_package = (PACKAGE / Path(*name.split("."))).is_dir()
    here = ["cl_graft", *name.split(".")]
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            up = here[: len(here) - node.level + is_package] if node.level else []
            start = ".".join([*up, *filter(None, [node.module])])
            yield from (f"{start}.{alias.name}" for alias in node.names)


def longest_prefix(name: str, table: Mapping[str, object]) -> str | None:
    parts = name.split(".")
    candidates = (".".join(parts[:size]) for size in range(len(parts), 0, -1))
    return next((candidate for candidate in candidates if candidate in table), None)


def place_of(name: str) -> int:
    """Place of a module's folder in the list."""
    return PLACE[longest_prefix(name, PLACE) or ""]


def imported_modules(name: str) -> Iterator[str]:
    """Modules of cl_graft that a module imports, at any depth of its code."""
    for target in imported(name, ast.walk(MODULES[name])):
        if target.startswith("cl_graft."):
            other = longest_prefix(target.removeprefix("cl_graft."), MODULES)
            if other is not None:
                yield other


def test_every_module_stands_in_a_folder_of_the_list():
    assert MODULES
    assert {name for name in MODULES if longest_prefix(name, PLACE) is None} == set()
    assert {name for name in MODULES if longest_prefix(name, OUTSIDE) is None} == set()


def test_imports_go_one_way():
    upward = {
        (name, other)
        for name in MODULES
        for other in imported_modules(name)
        if place_of(other) > place_of(name)
    }
    assert upward == set()


def test_no_folder_is_crowded():
    counts = Counter(path.parent.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
    assert counts.pop(Path()) <= 2  # __init__ and errors
    assert {folder: count for folder, count in counts.items() if count > LARGEST_FOLDER} == {}


def test_a_module_imports_only_the_libraries_of_its_folder():
    for name in MODULES:
        unit = longest_prefix(name, OUTSIDE)
        assert unit is not None, name
        allowed = OUTSIDE[unit] | {"cl_graft"} | sys.stdlib_module_names
        roots = {target.split(".")[0] for target in imported(name, ast.walk(MODULES[name]))}
        assert roots - allowed == set(), name


def test_no_module_imports_another_in_a_circle():
    table: dict[str, set[str]] = {name: set() for name in MODULES}
    for name, tree in MODULES.items():
        for target in imported(name, iter(tree.body)):
            other = longest_prefix(target.removeprefix("cl_graft."), table)
            if target.startswith("cl_graft.") and other not in (None, name):
                table[name].add(str(other))
    assert set(graphlib.TopologicalSorter(table).static_order()) == set(MODULES)


MEASURE = """
import json, sys, time
start = time.process_time()
import cl_graft
seconds = time.process_time() - start
heavy = {"torch", "avalanche", "transformers", "datasets", "torchvision"}
print(json.dumps({"seconds": seconds, "heavy": sorted(heavy & set(sys.modules))}))
"""


def measure_import() -> dict:
    answer = subprocess.run(
        [sys.executable, "-c", MEASURE],
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(answer.stdout)


def test_importing_the_package_is_cheap_and_loads_no_host():
    first = measure_import()
    assert first["heavy"] == []
    # Of the processor, and still more on a busy machine: one of three is quick.
    assert first["seconds"] < 0.3 or any(measure_import()["seconds"] < 0.3 for _ in range(2))
