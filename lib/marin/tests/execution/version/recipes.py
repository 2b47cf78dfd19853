"""Graphs of steps as plain JSON, built here in whichever process; run as a script it answers recipes with paths.

A recipe of a graph is a list of `[name, value, value]`; a recipe of a value is `[kind, ...]`, see `build`.
"""

from __future__ import annotations

import datetime
import enum
import json
import pathlib
import sys
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from marin.execution import (
    Executor,
    ExecutorStep,
    InputName,
    mirrored,
    output_path_of,
    this_output_path,
    versioned,
)

PREFIX = "/prefix"


class Colour(enum.Enum):
    RED = "red"
    BLUE = 2


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass(frozen=True)
class Config:
    first: Any = None
    second: Any = None


def do_nothing(_config: Any) -> None:
    """Every step's function."""


def build(recipe: list[Any], steps: list[ExecutorStep[Any]]) -> Any:
    """The value of a recipe."""
    kind, *rest = recipe
    match kind:
        case "plain":
            return rest[0]
        case "versioned":
            return versioned(build(rest[0], steps))
        case "mirrored":
            return mirrored(build(rest[0], steps))
        case "step":
            return steps[rest[0]]
        case "input":
            return output_path_of(steps[rest[0]], rest[1])
        case "nonblocking":
            return output_path_of(steps[rest[0]], rest[1]).nonblocking()
        case "hardcoded":
            return InputName.hardcoded(rest[0])
        case "output":
            return this_output_path(rest[0])
        case "list":
            return [build(item, steps) for item in rest[0]]
        case "tuple":
            return tuple(build(item, steps) for item in rest[0])
        case "pair":
            return Pair(build(rest[0], steps), build(rest[1], steps))
        case "dict":
            return {key: build(item, steps) for key, item in rest[0]}
        case "ordered":
            return OrderedDict((key, build(item, steps)) for key, item in rest[0])
        case "config":
            return Config(build(rest[0], steps), build(rest[1], steps))
        case "set_of_one":
            return {build(rest[0], steps), *rest[1]}
        case "numbers":
            return set(rest[0])
        case "colour":
            return Colour[rest[0]]
        case "path":
            return pathlib.PurePosixPath(rest[0])
        case "timedelta":
            return datetime.timedelta(seconds=rest[0])
        case "numpy":
            return np.int64(rest[0])
        case "type":
            return {"int": int, "Config": Config}[rest[0]]
    raise AssertionError(kind)


def build_graph(recipe: list[Any]) -> list[ExecutorStep[Any]]:
    """The steps of a recipe; each may refer to those before it."""
    steps: list[ExecutorStep[Any]] = []
    for name, first, second in recipe:
        config = Config(build(first, steps), build(second, steps))
        steps.append(ExecutorStep(name=name, fn=do_nothing, config=config))
    return steps


def paths_of(steps: list[ExecutorStep[Any]], order: list[int]) -> list[str]:
    """The output paths of steps that an executor takes in, in the given order."""
    executor = Executor(PREFIX, f"{PREFIX}/experiments")
    for index in order:
        executor.compute_version(steps[index])
    return [executor.output_paths[step] for step in steps]


if __name__ == "__main__":
    for line in sys.stdin:
        graph = json.loads(line)
        print(json.dumps(paths_of(build_graph(graph), list(reversed(range(len(graph)))))), flush=True)
