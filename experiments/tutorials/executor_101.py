"""Executor 101: three steps. Each reads the output of the previous one.

python -m experiments.tutorials.executor_101               # in this process
python -m experiments.tutorials.executor_101 --explain     # only say what would run, and why
iris job run -- python -m experiments.tutorials.executor_101

docs/tutorials/executor_101.md explains the steps and suggests changes.
"""

import json
import os
from collections import Counter
from dataclasses import dataclass

from marin.execution import ExecutorStep, executor_main, output_path_of, this_output_path, versioned
from rigging.filesystem import open_url, read_bytes_or_none

RHYME = """One for sorrow, two for mirth, three for a funeral and four for a birth,
five for heaven, six for hell, seven for the devil, his own self."""


# A step calls a function with one config. The config says what the function needs, and where its output goes.
@dataclass(frozen=True)
class WriteConfig:
    text: str
    output_path: str


def write_text(config: WriteConfig) -> None:
    """Write the source text."""
    print(f"writing {len(config.text)} characters")
    with open_url(os.path.join(config.output_path, "text.txt"), "w") as file:
        file.write(config.text)


@dataclass(frozen=True)
class CountConfig:
    input_path: str
    shortest: int
    output_path: str


def count_words(config: CountConfig) -> None:
    """Count the words with at least `shortest` letters."""
    with open_url(config.input_path, "r") as file:
        words = file.read().lower().replace(",", " ").replace(".", " ").split()
    counts = Counter(word for word in words if len(word) >= config.shortest)
    print(f"{len(counts)} different words")
    with open_url(os.path.join(config.output_path, "counts.json"), "w") as file:
        json.dump(counts, file)


@dataclass(frozen=True)
class TopConfig:
    input_path: str
    how_many: int
    title: str
    output_path: str


def write_top(config: TopConfig) -> None:
    """Write the most frequent words."""
    with open_url(config.input_path, "r") as file:
        counts = Counter(json.load(file))
    lines = [f"{word}: {count}" for word, count in counts.most_common(config.how_many)]
    with open_url(os.path.join(config.output_path, "top.txt"), "w") as file:
        file.write("\n".join([config.title, *lines]) + "\n")


# Nothing runs here: these lines only describe the steps. `this_output_path()` stands for a path not known yet.
text = ExecutorStep(
    name="executor_101/text",
    fn=write_text,
    config=WriteConfig(text=versioned(RHYME), output_path=this_output_path()),
)

# A step that names another one's output waits for it, and its version contains that step's version.
counts = ExecutorStep(
    name="executor_101/counts",
    fn=count_words,
    config=CountConfig(
        input_path=output_path_of(text, "text.txt"),
        shortest=versioned(3),
        output_path=this_output_path(),
    ),
)

# `title` is not versioned: a change of it makes nothing new.
top = ExecutorStep(
    name="executor_101/top",
    fn=write_top,
    config=TopConfig(
        input_path=output_path_of(counts, "counts.json"),
        how_many=versioned(3),
        title="The most frequent words",
        output_path=this_output_path(),
    ),
)


def main() -> None:
    """Run new steps, and print the result."""
    paths = executor_main(steps=[top], description="Executor 101")
    result = read_bytes_or_none(os.path.join(paths[top], "top.txt"))
    if result is not None:  # after `--explain` there may be none yet
        print(result.decode(), end="")


if __name__ == "__main__":
    main()
