"""Kinds of settings: names, configs and options of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from input_case import Case, Make, csv, document, good, jsonl, rows

__all__ = ["cases"]

BOMB = "a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 8)}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


def cases() -> list[Case]:
    """Return all kinds of settings."""
    return [*_configs(), *_options(), *_names(), *_prompts()]


def _configs() -> list[Case]:
    group = "config"

    def case(name: str, text: str | bytes, *says: str) -> Case:
        def make(folder: Path) -> None:
            good(folder)
            document(text, name="stream.yaml")(folder)

        command = ("compare", "{data}/stream.yaml", "--data", "{data}", "--out", "{out}")
        return Case(group, name, make, says, command=command)

    start = "stream: {tasks: [mine]}\n"
    return [
        case("unknown name", start + "densty: 0.1\n", "'densty'; did you mean 'grafting.density'"),
        case("key of before the parts", "tasks: [mine]\n", "'tasks' is now 'stream.tasks'"),
        case(
            "unknown inner name",
            "stream: {tasks: [mine], task_settings: {mine: {lable: a}}}",
            "mean 'stream.task_settings.mine.label'",
        ),
        case(
            "name given twice",
            start + "model: {}\nmodel: {}\n",
            r"yaml:3: .*'model' is given twice",
        ),
        case("tabs", "stream:\n\ttasks: mine\n", r"stream\.yaml:2: .*spaces, not tabs"),
        case("aliases that explode", start + BOMB, r"stream\.yaml:3: .*alias \*a"),
        case("alias of itself", "tasks: &a [*a]\n", r"stream\.yaml:1: .*alias \*a"),
        case("object of Python", start + "out: !!python/object:os.system {}\n", "not a YAML file"),
        case("no end of nesting", "tasks: " + "[" * 5000, "not a YAML file"),
        case("open bracket", "stream: {tasks: [mine\n", r"stream\.yaml:\d: not a YAML file"),
        case("date that is none", "tasks: 2024-13-45\n", "not a YAML file"),
        case("list", "- mine\n", "expected 'name: value' lines, got list"),
        case("empty", "", "expected 'name: value' lines, got NoneType"),
        case("no tasks", "stream: {shots: 4}\n", "'stream.tasks' is missing"),
        case("text as a number", "stream: {tasks: [mine], shots: many}\n", "shots: .*got 'many'"),
        case("half a shot", "stream: {tasks: [mine], shots: 1.5}\n", "shots: .*got 1.5"),
        case(
            "yes as a number",
            start + "fine_tuning: {steps: yes}\n",
            "steps: got True; YAML reads yes",
        ),
        case("number as a name", "stream: {tasks: [7]}\n", r"tasks\.0: .*got 7 .*quotes"),
        case("mapping as a list", "stream: {tasks: {mine: 1}}\n", "tasks: .*valid list"),
        case("list as a part", "stream: [mine]\n", "'stream' is a part with settings of its own"),
        case("list as a preset", start + "preset: [paper]\n", "preset: "),
        case(
            "learning rate that is no number",
            start + "fine_tuning: {lr: .nan}\n",
            "lr: .*finite number",
        ),
        case(
            "learning rate without end", start + "fine_tuning: {lr: .inf}\n", "lr: .*finite number"
        ),
        case(
            "density 0",
            start + "grafting: {density: 0}\n",
            r"density: must be in \(0, 1\] or 'auto'",
        ),
        case("task named twice", "stream: {tasks: [mine, mine]}\n", "mine is named twice"),
        case(
            "settings of another task",
            "stream: {tasks: [mine], task_settings: {yours: {}}}",
            "no task 'yours'",
        ),
        case("NUL", start + "model: {name: 'a\0b'}\n", r"stream\.yaml:2: .*U\+0000"),
        case("UTF-16", start.encode("utf-16"), "mark is that of UTF-16"),
        case("Latin-1", (start + "# é\n").encode("latin-1"), r"stream\.yaml:2: byte 0xe9 is not"),
        case("larger than a config is", start + "# " + "x" * 1_100_000, "larger than 1 MB"),
        case(
            "1,000 unknown names",
            start + "".join(f"k{n}: 1\n" for n in range(1000)),
            "and 995 more",
        ),
        Case(
            group,
            "folder as a config",
            good,
            (r"data: cannot read the config: Is a directory",),
            command=("run", "{data}", "--out", "{out}"),
        ),
        Case(
            group,
            "no config",
            good,
            (r"gone\.yaml: cannot read the config: No such file",),
            command=("run", "{data}/gone.yaml", "--out", "{out}"),
        ),
        Case(
            group,
            "endless device as a config",
            good,
            ("/dev/zero: ",),
            command=("run", "/dev/zero", "--out", "{out}"),
        ),
    ]


def _options() -> list[Case]:
    group = "option"

    def case(name: str, says: str, *arguments: str) -> Case:
        return Case(group, name, good, (says,), 2, arguments)

    def file_in_the_way(folder: Path) -> None:
        good(folder)
        (folder / "taken").write_text("mine")

    return [
        case("text as a number", "--shots", "--shots", "many"),
        case("no shots", "shots: .*got 0", "--shots", "0"),
        case("density above 1", r"density: must be in \(0, 1\]", "--density", "1.5"),
        case("density that is no number", "density: ", "--density", "lots"),
        case("seeds that are none", "seeds", "--seeds", "one,two"),
        case("negative seed", "seeds are numbers and ranges such as 0,1,2", "--seeds", "-1"),
        case("unknown option", "--shot", "--shot", "4"),
        case("unknown strategy", "did you mean 'grafting'", "--strategies", "graftin"),
        case("unknown localizer", "unknown localizer 'movment'", "--localizer", "movment"),
        case("unknown family", "family: unknown 'encodr'; did you mean", "--family", "encodr"),
        case("unknown device", "no device 'abacus'", "--device", "abacus"),
        case("--set without a value", "expected part.field=value", "--set", "shots"),
        case("--set of a broken value", "--set stream.shots", "--set", "stream.shots=[1"),
        case("--set of an alias", "alias", "--set", "stream.tasks=[&a x, *a]"),
        case("--set into a number", "'shots' has no inner settings",
             "--set", "stream.shots.x=1", "--shots", "4"),
        case("limit below 1", "max_megabytes: .*got 0", "--set", "stream.max_megabytes=0"),
        Case(group, "unknown command", good, ("No such command",), command=("compar",)),
        Case(
            group,
            "file in place of the output folder",
            file_in_the_way,
            ("taken: there is a file in the way; choose another folder",),
            command=("compare", "--tasks", "mine", "--data", "{data}", "--model", "{model}",
                     "--out", "{data}/taken"),
        ),
        Case(
            group,
            "other data for a finished comparison",
            jsonl([{**row, "text": f"other {n}"} for n, row in enumerate(rows())]),
            ("the data of mine changed since naive with seed 0 was run",),
        ),
    ]  # fmt: skip


def _names() -> list[Case]:
    group = "name"

    def case(name: str, task: str, *says: str, make: Make = good) -> Case:
        command = ("compare", "--tasks", task, "--model", "{model}", "--out", "{out}")
        return Case(group, name, make, says, command=command)

    return [
        case("nearly a built-in task", "sentimnt", "did you mean 'sentiment'"),
        case("nearly a generated task", "generated:sentimnt", "did you mean 'sentiment'"),
        case(
            "blank in a file name",
            "{data}/my data.csv",
            "'my data' cannot name a file",
            make=csv(name="my data.csv"),
        ),
        case(
            "escape sequence in a file name",
            "{data}/a\x1b[31m.csv",
            r"'a\\x1b\[31m' cannot name a file",
            make=csv(name="a\x1b[31m.csv"),
        ),
        case("way out of the folder", "hub/..", "'..' cannot name a file"),
        case("file that is not there", "{data}/gone.csv", r"gone\.csv: there is no such file"),
        case("name that is too long", "x" * 5000, "File name too long"),
        case("data set of a hub that does not answer", "someone/absent", "someone/absent"),
        case("no name of a hub", "some one/absent data", "cannot name a file|no name of a hub"),
        Case(
            group,
            "model of a hub that does not answer",
            good,
            ("no model 'someone/absent'",),
            2,
            ("--model", "someone/absent"),
        ),
        Case(group, "nearly a model", good, ("did you mean 'minilm'",), 2, ("--model", "minilmm")),
        Case(group, "folder without a model", good, ("holds no transformer",),
             command=("compare", "--tasks", "mine", "--data", "{data}", "--model", "{data}",
                      "--shots", "4", "--out", "{out}")),
    ]  # fmt: skip


def _prompts() -> list[Case]:
    """What only shows when rows meet a tokenizer is told before anything is computed, too."""
    group = "prompt and length"
    masked = ("--family", "masked_lm")

    def labelled(*names: str) -> Make:
        return jsonl(rows(label=lambda n: names[n % len(names)]))

    def case(name: str, make: Make, says: str, *arguments: Any) -> Case:
        return Case(group, name, make, (says,), 2, arguments)

    return [
        case(
            "label word of several tokens",
            labelled("great", "incomprehensibilities"),
            "task 'mine': the word 'incomprehensibilities' of label .* must be one token",
            *masked,
        ),
        case(
            "label words that no vocabulary has",
            labelled("great", "漢字"),
            "task 'mine': the word '漢字' of label",
            *masked,
        ),
        case(
            "more tokens than the model has positions",
            good,
            r"max_length must be at most \d+, the positions of",
            "--set",
            "stream.max_length=100000",
        ),
        case(
            "no room beside the prompt",
            labelled("great", "terrible"),
            "task 'mine': train rows: the prompt .* leaves no room",
            *masked,
            *("--set", "stream.max_length=4"),
        ),
    ]
