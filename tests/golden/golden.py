"""What commands answer on tiny models, recorded once and compared after every change of structure.

    python tests/golden/golden.py record     # writes tests/golden/recorded.json
    python tests/golden/golden.py check      # says what differs; exit code 1 if anything does

Recorded are scores R, hashes of what banks hold and of logits, bytes of exported weights, answers,
exit codes, the sentences for bad input, and the names that packages offer. A difference that is
wanted stands with its reason in ``tests/golden/changes.json``.

Bits depend on the processor and on the versions of torch and Python. Where these are not those of
the record, hashes, sizes and calibration errors are left out of the comparison, which is said.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import pkgutil
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import torch  # noqa: E402
import yaml  # noqa: E402
from configs import settings as by_part  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from tiny_models import tiny_bert, tiny_gpt2, tiny_roberta  # noqa: E402
from tiny_runs import cl_graft_each  # noqa: E402

from cl_graft.grafts.hashing import environment  # noqa: E402

RECORDED = HERE / "recorded.json"
CHANGES = HERE / "changes.json"
OF_BITS = (
    r"/.*/(logit_hashes|bank|ece|bytes)(/.*)?|/(bank after add|exported weights|predict)(/.*)?"
)
"""Places of what is the same with the same bits alone; a file is as long as its numbers are."""

QUICK: dict[str, Any] = {
    "tasks": ["sentiment", "topic"],
    "data": str(HERE / "rows"),
    "shots": 16,
    "steps": 6,
    "max_length": 24,
    "max_test": 20,
    "density": 0.01,
    "localizer": "learned_mask",
    "dense_share": 1.0,
    "grafting.optimizer": "sgd",
    "grafting.dropout": True,
    "mask_steps": 2,
    "mask_batch": 16,
    "evaluations": 2,
    "region_lr": 0.1,
    "device": "cpu",
}
STRATEGIES = (
    *("lt_sft", "grafting_learned_mask", "grafting_paper_mask"),
    *("grafting_path_integral", "grafting_movement", "grafting_base_gradient", "grafting_sam"),
    *("grafting_fisher", "grafting_fish", "grafting_diff_pruning", "grafting_diff_pruning_sam"),
    *("grafting_child_pruning", "grafting_magnitude"),
    *("grafting_bias_only", "grafting_layer_norm_only"),
    *("grafting_random", "grafting_without_retraining", "grafting_by_discriminant"),
    *("merging_by_average", "merging_by_task_arithmetic", "merging_by_ties", "merging_by_dare"),
    *("merging_by_magmax", "merging_by_localize_and_stitch", "naive", "cumulative", "joint"),
    *("independent", "ewc", "ewc_online", "si", "mas", "lwf", "replay", "gdumb", "agem", "der"),
    *("er_ace", "bitfit", "adapters", "prompt_tuning", "lora", "sequential_lora", "o_lora"),
    *("packnet", "piggyback", "wsn"),
)
STREAMS: Mapping[str, tuple[str, str, dict[str, Any]]] = {
    "grafting": ("bert", "grafting", {}),
    "default recipe": (
        *("bert", "grafting"),
        {
            "localizer": "movement",
            "dense_share": None,
            "grafting.optimizer": "adamw",
            "grafting.dropout": False,
        },
    ),
    "isolated": ("bert", "grafting", {"mode": "isolated"}),
    "base gradient": ("bert", "grafting", {"localizer": "base_gradient"}),
    "standalone": ("bert", "grafting", {"keep_standalone": True}),
    "bf16": ("bert", "grafting", {"precision": "bf16"}),
    "masked_lm": (
        "roberta",
        "grafting",
        {"family": "masked_lm", "tasks": ["sentiment", "paraphrase"]},
    ),
    "causal_lm": ("gpt2", "grafting", {"family": "causal_lm", "grafting.optimizer": "adamw"}),
    "domain": ("bert", "naive", {"scenario": "domain", "tasks": ["shared-50-0", "shared-50-1"]}),
    **{name: ("bert", name, {}) for name in STRATEGIES},
}
BAD_INPUT: Mapping[str, list[str]] = {
    "missing config": ["run", "HERE/nowhere.yaml"],
    "config that is no mapping": ["run", "HERE/list.yaml"],
    "unknown task": ["compare", "--tasks", "scop", "--model", "HERE/bert", "--out", "HERE/x"],
    "unknown model": ["compare", "--tasks", "scope", "--model", "minilmm", "--out", "HERE/x"],
    "unknown strategy": [
        *["compare", "--tasks", "scope", "--model", "HERE/bert"],
        *["--strategies", "graftin", "--out", "HERE/x"],
    ],
    "density 0": [
        *["compare", "--tasks", "scope", "--model", "HERE/bert"],
        *["--density", "0", "--out", "HERE/x"],
    ],
    "missing data": [
        *["compare", "--tasks", "mine", "--data", "HERE/nowhere"],
        *["--model", "HERE/bert", "--out", "HERE/x"],
    ],
    "bad label": [
        *["compare", "--tasks", "HERE/bad.jsonl", "--model", "HERE/bert", "--out", "HERE/x"]
    ],
    "no bank": ["verify", "HERE/no_model"],
    "missing bank": ["add", "HERE/nowhere", "--task", "topic"],
    "foreign graft": ["inspect", "HERE/foreign.safetensors"],
    "no transformer": [
        *["compare", "--tasks", "scope", "--model", "HERE/no_model", "--out", "HERE/x"]
    ],
}


def main() -> None:
    """Record, or compare with what was recorded."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("action", choices=("record", "check"))
    parser.add_argument("--recorded", type=Path, default=RECORDED)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = {**observe(Path(folder)), "names": offered_names(), "recorded on": environment()}
    if given.action == "record":
        given.recorded.write_text(f"{json.dumps(found, indent=1, sort_keys=True)}\n")
        return
    known = json.loads(CHANGES.read_text()) if CHANGES.exists() else {}
    recorded = json.loads(given.recorded.read_text())
    differences = list(compare(recorded, found))
    if (place := recorded.get("recorded on")) != found["recorded on"]:
        sys.stdout.write(f"bits are not compared, as they were recorded on {place}\n")
        differences = [
            one for one in differences if not re.fullmatch(f"{OF_BITS}|/recorded on/.*", one[0])
        ]
    unexplained = [line for where, line in differences if not explained(where, known)]
    for where, line in differences:
        sys.stdout.write(f"{'explained: ' if explained(where, known) else ''}{line}\n")
    sys.stdout.write(f"{len(differences)} differences, {len(unexplained)} without a reason\n")
    sys.exit(bool(unexplained))


def observe(place: Path) -> dict[str, Any]:
    """Run the fixed set of commands in an empty folder; return what they did."""
    tiny_bert(place / "bert"), tiny_roberta(place / "roberta"), tiny_gpt2(place / "gpt2")
    (place / "list.yaml").write_text("- 1\n")
    (place / "no_model").mkdir()
    (place / "foreign.safetensors").write_bytes(b"something else")
    rows = [{"text": f"text {n}", "label": ["no", "yes"][n % 2]} for n in range(60)]
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    (place / "bad.jsonl").write_text(f'{lines}{{"text": "no label"}}\n')
    (place / "mine.jsonl").write_text(lines)
    commands: dict[str, list[str]] = {}
    for name, (model, strategy, settings) in STREAMS.items():
        config = place / f"{name.replace(' ', '_')}.yaml"
        config.write_text(
            yaml.safe_dump(by_part({**QUICK, "model": str(place / model), **settings}))
        )
        out = place / "out" / name.replace(" ", "_")
        commands[name] = ["run", str(config), "--strategy", strategy, "--out", str(out), "--quiet"]
    bank = str(place / "out" / "grafting" / "grafting" / "seed0" / "bank")
    commands |= {
        "predict": ["predict", bank, "--task", "topic", "a fine day at the sea", "--json"],
        "verify": ["verify", bank],
        "add": ["add", bank, "--task", str(place / "mine.jsonl"), "--quiet"],
        "verify again": ["verify", bank],
        "inspect": ["inspect", bank, "--json"],
        "export": [
            *["export", bank, "--task", "topic", "--format", "hf"],
            *["--out", str(place / "exported")],
        ],
        "report": ["report", str(place / "out" / "grafting"), "--out", str(place / "page")],
    }
    bad = {f"bad input: {name}": given for name, given in BAD_INPUT.items()}
    commands |= {
        name: [part.replace("HERE", str(place)) for part in given] for name, given in bad.items()
    }
    answers = dict(zip(commands, cl_graft_each(list(commands.values()), imports=True), strict=True))
    found: dict[str, Any] = {}
    for name, told in answers.items():
        one: dict[str, Any] = {"exit code": told.code}
        if name in STREAMS:
            one |= of_run(place / "out" / name.replace(" ", "_") / STREAMS[name][1] / "seed0")
        elif name in bad or told.code:
            one["sentence"] = plain(told.err, place)
        elif name == "predict":
            one["answer"] = rounded(told.json)
        found[name] = one
    found["bank after add"] = of_bank(Path(bank))
    found["exported weights"] = {
        path.name: sha256(b"".join(raw(tensor) for _, tensor in sorted(load_file(path).items())))
        for path in sorted((place / "exported").glob("*.saf*"))
    }
    found["report files"] = sorted(
        path.suffix for path in (place / "page").rglob("*") if path.is_file()
    )
    return found


def of_run(folder: Path) -> dict[str, Any]:
    """What must stay of a run: its scores, what it computed and what its bank holds."""
    if not (folder / "results.json").exists():
        return {"results": None}
    results = json.loads((folder / "results.json").read_text())
    kept = {
        name: rounded(results[name])
        for name in ("R", "ece", "logit_hashes", "passes", "bytes")
        if name in results
    }
    return {**kept, "bank": of_bank(folder / "bank") if (folder / "bank").exists() else None}


def of_bank(folder: Path) -> list[dict[str, str]]:
    """Hashes of what each entry of a bank holds: coordinates, values, head and recorded logits."""
    from cl_graft.storage import load_bank

    entries = []
    for entry in load_bank(folder).entries:
        recorded = getattr(entry, "recorded_batch", None) or getattr(entry, "canary", None)
        entries.append(
            {
                "task": entry.task,
                "coordinates": tensor_hash(entry.owned.region.index),
                "values": tensor_hash(entry.owned.values),
                "head": sha256(b"".join(raw(value) for _, value in sorted(entry.head.items()))),
                "recorded logits": tensor_hash(recorded.logits) if recorded else "",
            }
        )
    return entries


def offered_names() -> dict[str, list[str]]:
    """The names in every package's ``__all__``."""
    import cl_graft

    found = {"cl_graft": sorted(cl_graft.__all__)}
    for module in pkgutil.walk_packages(cl_graft.__path__, "cl_graft."):
        if module.ispkg:
            found[module.name] = sorted(
                getattr(importlib.import_module(module.name), "__all__", [])
            )
    return found


def compare(old: Any, new: Any, where: str = "") -> list[tuple[str, str]]:
    """Every place where two records differ, each with a sentence."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        found = []
        for key in sorted({*old, *new}):
            found += compare(old.get(key), new.get(key), f"{where}/{key}")
        return found
    return [] if old == new else [(where, f"{where}: {shortened(old)} is now {shortened(new)}")]


def explained(where: str, known: Mapping[str, str]) -> bool:
    """Whether a difference, or all below a place, has a reason."""
    return any(re.fullmatch(pattern, where) for pattern in known)


def shortened(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 300 else f"{text[:300]}…"


def plain(text: str, place: Path) -> str:
    return " ".join(text.replace(str(place), "HERE").split())


def rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {key: rounded(inner) for key, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, list) else value


def raw(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().view(torch.uint8).numpy().tobytes()


def tensor_hash(tensor: torch.Tensor) -> str:
    return sha256(raw(tensor))


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


if __name__ == "__main__":
    main()
