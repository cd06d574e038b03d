"""Write a bank of format 5, as made before the first release, anew as version 1.

    python benchmarks/rewrite_old_bank.py OLD NEW

The script goes with release 0.1.0.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from cl_graft.grafts.bank import BaseIdentity, Entry, GraftBank
from cl_graft.grafts.graft import Graft
from cl_graft.grafts.region import Layout
from cl_graft.storage import load_bank, save_bank
from cl_graft.storage.serialization import read_head, read_recorded_batch, read_region


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path, help="a folder that does not exist yet")
    given = parser.parse_args()
    rewrite_bank(given.old, given.new)
    print(load_bank(given.new))


def rewrite_bank(old: Path, new: Path) -> None:
    index = json.loads((old / "bank.json").read_bytes())
    if (index["format"], index["version"]) != ("cl-graft-bank", 5):
        raise SystemExit(f"{old} is a {index['format']} of version {index['version']}, not of 5")
    base, layout = index["base"], index["layout"]
    identity = BaseIdentity(base["fingerprint"], base["model"], base["dtype"], base["facts"])
    shapes = tuple(tuple(shape) for shape in layout["shapes"])
    bank = GraftBank(Layout(tuple(layout["names"]), shapes), identity, index["mode"])
    save_bank(bank.extend([read_entry(line, old, bank.layout) for line in index["entries"]]), new)


def read_entry(line: Mapping[str, Any], folder: Path, layout: Layout) -> Entry:
    head, tensors = read_tensors(folder, line)
    standalone = None
    if "standalone" in line:
        more, values = read_tensors(folder, line["standalone"])
        region = read_region(more["count"], "graft", values, layout)
        standalone = Graft(region, values["graft.values"])
    return Entry(
        task=line["task"],
        label=line["label"],
        owned=Graft(read_region(head["owned"], "owned", tensors, layout), tensors["owned.values"]),
        owned_before=read_region(head["lost"], "lost", tensors, layout),
        head=read_head(tensors),
        standalone=standalone,
        weights_sha256=line["weights_sha256"],
        recorded_batch=read_recorded_batch(head["canary"], tensors) if "canary" in head else None,
        metadata=head["facts"],
        builds_on=tuple(line["builds_on"]) if "builds_on" in line else None,
    )


def read_tensors(folder: Path, listed: Mapping[str, Any]) -> tuple[Any, dict[str, Tensor]]:
    path = folder / listed["file"]
    if hashlib.sha256(path.read_bytes()).hexdigest() != listed["sha256"]:
        raise SystemExit(f"{path} is altered")
    with safe_open(path, framework="pt") as file:
        head = json.loads(file.metadata()["cl-graft"])
    tensors = load_file(path)
    return head, {name.replace("canary.", "recorded."): tensors[name] for name in tensors}


if __name__ == "__main__":
    main()
