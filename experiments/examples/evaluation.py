"""Evaluate three models on two test sets: a step for each pair, and one for the table of scores.

python -m experiments.examples.evaluation
"""

import json
import math
import os
from collections import Counter
from dataclasses import dataclass

from marin.execution import ExecutorStep, InputName, executor_main, output_path_of, this_output_path, versioned
from rigging.filesystem import open_url

TRAINING = "the cat sat on the mat and the dog sat on the log while the rain fell on the roof of the house " * 20
TESTS = {"near": "the dog sat on the mat while the rain fell on the cat", "far": "quartz jugs vexed a bold wizard"}
ORDERS = (0, 1, 2)


@dataclass(frozen=True)
class ModelConfig:
    order: int
    output_path: str


def train(config: ModelConfig) -> None:
    """Count the characters that follow each sequence of `order` characters."""
    ends = range(config.order, len(TRAINING))
    counts = Counter(TRAINING[end - config.order : end + 1] for end in ends)
    with open_url(os.path.join(config.output_path, "counts.json"), "w") as file:
        json.dump(counts, file)


@dataclass(frozen=True)
class ScoreConfig:
    model: InputName
    order: int
    text: str
    output_path: str


def score(config: ScoreConfig) -> None:
    """Write the model's bits per character of a text."""
    with open_url(os.path.join(str(config.model), "counts.json"), "r") as file:
        counts = json.load(file)
    totals: Counter[str] = Counter()
    for run, times in counts.items():
        totals[run[:-1]] += times
    bits = 0.0
    for end in range(config.order, len(config.text)):
        run = config.text[end - config.order : end + 1]
        bits -= math.log2((counts.get(run, 0) + 0.1) / (totals[run[:-1]] + 0.1 * 256))
    with open_url(os.path.join(config.output_path, "score.json"), "w") as file:
        json.dump(bits / (len(config.text) - config.order), file)


@dataclass(frozen=True)
class TableConfig:
    scores: dict[str, dict[str, InputName]]
    output_path: str


def tabulate(config: TableConfig) -> None:
    """Print and write the table: a row for each model, a column for each test set."""
    lines = ["bits per character  " + "  ".join(f"{test:>5}" for test in TESTS)]
    for model, folders in config.scores.items():
        cells = []
        for folder in folders.values():
            with open_url(os.path.join(str(folder), "score.json"), "r") as file:
                cells.append(f"{json.load(file):5.2f}")
        lines.append(f"{model:<18}  " + "  ".join(cells))
    print("\n".join(lines), flush=True)
    with open_url(os.path.join(config.output_path, "table.txt"), "w") as file:
        file.write("\n".join(lines) + "\n")


def make_step() -> ExecutorStep[TableConfig]:
    """Return the step of the table, which depends on models and scores."""
    scores: dict[str, dict[str, InputName]] = {}
    for order in ORDERS:
        model = ExecutorStep(
            name=f"examples/evaluation/model-{order}",
            fn=train,
            config=ModelConfig(versioned(order), this_output_path()),
        )
        scores[f"order {order}"] = {
            test: output_path_of(
                ExecutorStep(
                    name=f"examples/evaluation/{test}-{order}",
                    fn=score,
                    config=ScoreConfig(output_path_of(model), order, versioned(text), this_output_path()),
                )
            )
            for test, text in TESTS.items()
        }
    return ExecutorStep(name="examples/evaluation/table", fn=tabulate, config=TableConfig(scores, this_output_path()))


if __name__ == "__main__":
    executor_main(steps=[make_step()], description="Models and test sets")
