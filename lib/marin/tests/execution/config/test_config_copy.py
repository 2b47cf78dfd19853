"""A step's function receives a config of its own: a change of it reaches no other step and no other attempt."""

from __future__ import annotations

import collections
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from fray.backends.local import LocalClient
from fray.current_client import set_current_client
from fray.types import ResourceConfig
from marin.execution import Executor, ExecutorStep, instantiate_config, materialize, resolve_executor_step, versioned
from marin.execution.config.copying import copy_config
from marin.execution.sweep import SweepTarget, run_sweep
from rigging.errors import InvalidRequest, StepFailed

sys.path.insert(0, os.path.dirname(__file__))
from config_kinds import WALKED, Attrs, Frozen, Model, Plain, Thing


@dataclass
class Options:
    lr: float = 0.1
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class TrainConfig:
    seed: Any
    options: Options
    tags: list[str]
    table: dict[str, Any]


def spoil(config: TrainConfig, seen: list[Any]) -> None:
    seen.append((config.seed, config.options.lr, list(config.tags), dict(config.table)))
    config.tags.append("more")
    config.options.lr *= 2
    config.table["x"] = 1


@pytest.mark.parametrize("as_job", [False, True], ids=["here", "job"])
def test_what_a_function_changes_in_its_config_reaches_no_other_step(tmp_path: Path, as_job: bool) -> None:
    options, tags, table = Options(), ["a"], {"k": [1]}
    seen: list[Any] = []
    resources = ResourceConfig.with_cpu() if as_job else None
    steps = [
        ExecutorStep(
            f"s{seed}",
            lambda config: spoil(config, seen),
            TrainConfig(versioned(seed), options, tags, table),
            resources=resources,
        )
        for seed in (1, 2)
    ]
    with LocalClient() as client, set_current_client(client):
        Executor(str(tmp_path), str(tmp_path / "infos")).run(steps, max_concurrent=1)
    assert seen == [(seed, 0.1, ["a"], {"k": [1]}) for seed in (1, 2)]
    assert (options, tags, table) == (Options(), ["a"], {"k": [1]})


def test_another_attempt_of_the_same_executor_gets_the_config_as_it_was_planned(tmp_path: Path) -> None:
    seen: list[Any] = []

    def fail_once(config: TrainConfig) -> None:
        spoil(config, seen)
        if len(seen) == 1:
            raise ValueError("the first attempt")

    given = TrainConfig(versioned(1), Options(), ["a"], {})
    step = ExecutorStep("s", fail_once, given)
    executor = Executor(str(tmp_path), str(tmp_path / "infos"))
    with pytest.raises(StepFailed):
        executor.run([step])
    given.tags.append("after the version was computed")
    executor.run([step])
    assert seen == [(1, 0.1, ["a"], {})] * 2
    spec = resolve_executor_step(step, executor.configs[step], str(tmp_path / "again"))
    assert spec.fn is not None
    spec.fn("")
    assert seen[2] == seen[0]
    assert executor.configs[step].tags == ["a"]


def test_what_materialize_gives_back_and_what_targets_of_a_sweep_change_reach_no_other(tmp_path: Path) -> None:
    given, tags = {"tags": ["a"]}, ["a"]
    materialize(given, prefix=str(tmp_path))["tags"].append("b")
    run_sweep(str(tmp_path), [SweepTarget(name, {"tags": tags}) for name in "xy"], lambda c: c["tags"].append("b"))
    assert (given, tags) == ({"tags": ["a"]}, ["a"])


@pytest.mark.parametrize("kind", WALKED)
def test_every_kind_of_container_is_made_anew(kind: str) -> None:
    inner: list[Any] = [1]
    config = WALKED[kind](inner)
    made = instantiate_config(config, None, {}, "/p")
    assert type(made) is type(config)
    changed, kept = repr_of(WALKED[kind]([1, 2])), repr_of(config)
    assert repr_of(made) == kept
    inner.append(2)
    assert (repr_of(config), repr_of(made)) == (changed, kept)


def repr_of(config: Any) -> str:
    return repr(config._content if isinstance(config, Frozen) else config)


class Pair(NamedTuple):
    first: Any
    second: Any


class Attributes(dict[str, Any]):
    """A dict whose items are its attributes."""

    def __init__(self, **items: Any) -> None:
        super().__init__(items)
        self.__dict__ = self


@dataclass
class Output(dict[str, Any]):
    """A dataclass that has items, too."""

    scores: list[Any] = field(default_factory=list)


class Labelled(list[Any]):
    label: Any = None


@dataclass(eq=False)
class Node:
    name: str
    below: list[Node] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.by_name = {node.name: node for node in self.below}
        self.made = getattr(self, "made", 0) + 1


@dataclass(frozen=True, slots=True)
class Slots:
    x: Any


@dataclass(frozen=True)
class Uncopyable:
    x: Any

    def __reduce__(self) -> Any:
        raise TypeError("this holds a connection")


def test_what_is_one_object_stays_one() -> None:
    shared = ["a"]
    for make in WALKED.values():
        first, second = copy_config([make(shared), {"b": shared}])
        second["b"].append("b")
        assert repr_of(first) == repr_of(make(["a", "b"]))
        shared[:] = ["a"]
    leaf = Node("leaf")
    root = copy_config(Node("root", [leaf]))
    weights, nodes = copy_config(({leaf: 0.5}, [leaf]))
    assert root.by_name["leaf"] is root.below[0] is not leaf, "attributes that are no fields go along"
    assert (root.made, weights[nodes[0]]) == (1, 0.5), "no constructor is called; keys stay the same objects"


def test_subclasses_and_odd_kinds_keep_what_they_are() -> None:
    labelled = Labelled([["x"]])
    labelled.label = {"l": 1}
    grouped = collections.defaultdict(list, a=[1])
    attributes = Attributes(tags=["a"])
    config = [Pair([1], 2), labelled, grouped, attributes, collections.Counter(a=2), SimpleNamespace(x=[1]), Slots([1])]
    made = copy_config(config)
    assert made == config
    assert [type(item) for item in made] == [type(item) for item in config]
    pair, label, groups, named, _, space, slots = made
    for changed in (pair.first, label[0], label.label["l"] and groups["new"], named["tags"], space.x, slots.x):
        changed.append("changed")
    label.label["m"] = 2
    assert named.tags is named["tags"]
    assert repr(config[:3]) == repr([Pair([1], 2), [["x"]], collections.defaultdict(list, a=[1])])
    assert config[3:] == [{"tags": ["a"]}, collections.Counter(a=2), SimpleNamespace(x=[1]), Slots([1])]
    assert labelled.label == {"l": 1}


def test_of_a_dataclass_that_is_a_dict_fields_and_items_are_made_anew() -> None:
    output = Output([1])
    output["x"] = [2]
    made = copy_config(output)
    assert (type(made), made.scores, dict(made)) == (Output, [1], {"x": [2]})
    for new, old in ((made.scores, output.scores), (made["x"], output["x"])):
        assert new is not old


def test_models_keep_which_fields_were_set() -> None:
    model = Model(x=[1])
    model._kept = [2]
    made = copy_config(model)
    made.x.append(3)
    made._kept.append(3)
    assert (model.x, model._kept, made.model_fields_set) == ([1], [2], {"x"})
    attrs = copy_config(Attrs(x=[1]))
    assert attrs == Attrs(x=[1])


@pytest.mark.parametrize(
    "make", [lambda: Thing([1]), lambda: np.arange(3), lambda: Plain.__init__, lambda: Slots("x"), lambda: (1, ("a",))]
)
def test_what_is_no_part_of_a_config_or_cannot_change_is_shared(make: Callable[[], Any]) -> None:
    thing = make()
    assert copy_config({"k": [thing]})["k"][0] is thing


def test_what_cannot_be_copied_is_shared() -> None:
    thing = Uncopyable([1])
    assert copy_config([thing])[0] is thing
    deep: list[Any] = []
    for _ in range(2000):
        deep = [deep]
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        copy_config(deep)
