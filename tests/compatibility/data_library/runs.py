"""Stages of a dataset, one after the other, whatever runs their tasks."""

import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from data_library.dataset import Dataset, Operation, Shuffle, WriteJsonl
from data_library.storage import remove
from data_library.tasks import Task, TaskResult
from rigging.filesystem import marin_temp_bucket

RunStage = Callable[[list[Task]], Sequence[TaskResult]]


@dataclass
class Outcome:
    """What a run has made: records, or the paths of files; and what was counted."""

    records: list[Any] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Stage:
    """Operations between two shuffles."""

    grouping: Shuffle | None
    operations: tuple[Operation, ...]
    output: Shuffle | WriteJsonl | None


def plan(dataset: Dataset) -> list[Stage]:
    """Cut the chain at its shuffles and writes."""
    stages: list[Stage] = []
    grouping: Shuffle | None = None
    fused: list[Operation] = []
    for operation in dataset.operations:
        if stages and isinstance(stages[-1].output, WriteJsonl):
            raise ValueError(f"nothing can follow write_jsonl: {operation}")
        if isinstance(operation, Shuffle | WriteJsonl):
            stages.append(Stage(grouping, tuple(fused), operation))
            grouping, fused = operation if isinstance(operation, Shuffle) else None, []
        else:
            fused.append(operation)
    if fused or grouping is not None or not stages:
        stages.append(Stage(grouping, tuple(fused), None))
    return stages


def run_plan(dataset: Dataset, name: str, run_stage: RunStage) -> Outcome:
    """Run all stages by `run_stage`; what lies between them is in a temporary bucket, and removed at the end."""
    scratch = marin_temp_bucket(ttl_days=1, prefix=f"data-library/{name}-{uuid.uuid4().hex[:8]}")
    outcome = Outcome()
    shards: list[list[Any]] = [list(source) for source in dataset.sources]
    try:
        for number, stage in enumerate(plan(dataset)):
            tasks = [
                Task(number, shard, len(shards), inputs, stage.operations, stage.grouping, stage.output, scratch)
                for shard, inputs in enumerate(shards)
            ]
            results = sorted(run_stage(tasks) if tasks else (), key=lambda result: result.shard)
            outcome.counters.update(sum((result.counters for result in results), Counter()))
            outcome.records = [record for result in results for record in result.records]
            if isinstance(stage.output, Shuffle) and tasks:
                shards = [
                    [result.parts[partition] for result in results if partition in result.parts]
                    for partition in range(stage.output.shards)
                ]
    finally:
        remove(scratch)
    return outcome
