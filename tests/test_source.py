"""Nothing in the package runs what a file says: its source is searched for the calls that could.

The table names every call that could run or unpickle what comes from outside; nothing is excepted.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
STRESS = (path for path in (ROOT / "tests" / "stress").glob("*.py") if path.name[:5] != "test_")
SOURCES = sorted(
    [*(ROOT / "cl_graft").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py"), *STRESS]
)

FORBIDDEN_MODULES = {
    "cloudpickle",
    "code",
    "dill",
    "joblib",
    "marshal",
    "pickle",
    "pty",
    "shelve",
    "xmlrpc",
}
FORBIDDEN_NAMES = {"eval", "exec", "compile", "__import__", "breakpoint"}
FORBIDDEN_CALLS = {
    "os.popen",
    "os.system",
    "pd.read_pickle",
    "tempfile.mktemp",
    "torch.hub.load",
    "torch.save",
    "yaml.full_load",
    "yaml.load_all",
    "yaml.unsafe_load",
}


def _walk(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield what is forbidden in a module, and its line."""
    safe = {"yaml.SafeLoader"} | {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and [*map(ast.unparse, node.bases)] == ["yaml.SafeLoader"]
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            named = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            named += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in named:
                if name.split(".")[0] in FORBIDDEN_MODULES:
                    yield node.lineno, f"imports {name}"
        if isinstance(node, ast.Call):
            yield from ((node.lineno, what) for what in _in_call(node, safe))


def _in_call(call: ast.Call, safe: set[str]) -> Iterator[str]:
    name = ast.unparse(call.func)
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    if name in FORBIDDEN_NAMES or name in FORBIDDEN_CALLS:
        yield f"calls {name}"
    if name.endswith("torch.load") and not _is(keywords.get("weights_only"), True):
        yield "calls torch.load without weights_only=True"
    loaders = [*call.args[1:], *(k.value for k in call.keywords if k.arg == "Loader")]
    if name == "yaml.load" and (not loaders or ast.unparse(loaders[0]) not in safe):
        yield "calls yaml.load without a safe loader"
    if name.endswith("np.load") and "allow_pickle" in keywords:
        yield "calls np.load with allow_pickle"
    if _is(keywords.get("shell"), True):
        yield f"calls {name} in a shell"
    if _is(keywords.get("trust_remote_code"), True):
        yield f"calls {name} with trust_remote_code=True, which is the user's to say"
    if name.endswith(("extractall", "unpack_archive")):
        yield f"calls {name}, which writes where an archive says"


def _is(node: ast.expr | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def test_no_source_unpickles_or_runs_what_a_file_holds() -> None:
    assert SOURCES
    found = [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path in SOURCES
        for line, what in _walk(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []


def test_remote_code_is_off_unless_it_is_asked_for() -> None:
    """Every function and setting that knows trust_remote_code has it off by default."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                keywords = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
                positional = node.args.args[::-1]
                defaults = zip(positional, node.args.defaults[::-1], strict=False)
                for argument, default in [*keywords, *defaults]:
                    if argument.arg == "trust_remote_code" and default is not None:
                        assert _is(default, False), f"{path.name}:{node.lineno}"
