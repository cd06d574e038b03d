"""YAML of configs and streams: safe, without aliases, and with every name given once."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, cast

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError

from cl_graft.data.text_files import decode_lines
from cl_graft.errors import InputError

_MOST_BYTES = 1_000_000


def read_yaml_file(path: Path, *, kind: str = "config") -> dict[str, Any]:
    """Read a file of settings."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot read the {kind}: {error.strerror}") from None
    if len(data) > _MOST_BYTES:
        raise InputError(f"{path}: not a {kind}: it is larger than 1 MB")
    values = read_yaml("".join(decode_lines(data, str(path))), origin=str(path))
    if not isinstance(values, dict):
        raise InputError(
            f"{path}: expected 'name: value' lines, got {type(values).__name__}; an example: "
            "'stream: {tasks: [qnli, ag_news]}'"
        )
    return values


def read_yaml(text: str, *, origin: str) -> Any:
    """Return what a YAML document holds."""
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark is not None else ""
        fault = " ".join((error.problem or str(error)).split())
        hint = " (indent with spaces, not tabs)" if "\\t" in fault else ""
        begin = error.context_mark or error.problem_mark
        if begin is not None and (first := text[begin.index : begin.index + 1]) in set("*&!%@`"):
            hint = f" (put quotes around a text that begins with {first})"
        raise InputError(f"{origin}{line}: not a YAML file: {fault}{hint}") from None
    except yaml.reader.ReaderError as error:
        line, character = text.count("\n", 0, error.position) + 1, cast(Any, error.character)
        code = character if isinstance(character, int) else ord(character)
        raise InputError(
            f"{origin}:{line}: not a YAML file: the character U+{code:04X} has no place here"
        ) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        fault = " ".join(str(error).split())
        raise InputError(f"{origin}: not a YAML file: {fault}") from None


class _Loader(yaml.SafeLoader):
    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event: Any = self.peek_event()
            raise ComposerError(
                None, None, f"the alias *{event.anchor}: write its values out", event.start_mark
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[str] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            name = key.value if isinstance(key, yaml.ScalarNode) else ""
            if name in seen:
                raise ConstructorError(None, None, f"{name!r} is given twice", key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)


def write_text(text: str) -> str:
    """Write a text as `read_yaml` reads it, without quotes where nobody needs them."""
    return yaml.dump(text, Dumper=_Dumper, width=math.inf).removesuffix("...\n").strip()


class _Dumper(yaml.SafeDumper):
    """Writes what `_Loader` reads."""


# As in YAML 1.2: 1e-3 is a number without a point, too.
_EXPONENT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d{1,3}$")
for _yaml in (_Loader, _Dumper):
    _yaml.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, [*"-+.0123456789"])
