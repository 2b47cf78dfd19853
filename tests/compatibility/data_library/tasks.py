"""One task: a shard of a stage, from its inputs to its output. Runs wherever a worker is."""

import pickle
import threading
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

from data_library.dataset import Shuffle, WriteJsonl
from data_library.storage import partition_of, read_parts, text_of, write_jsonl, write_parts


@dataclass(frozen=True)
class Task:
    """`inputs` are the shard's records, or with `grouping` the paths of the parts that the stage before has written."""

    stage: int
    shard: int
    total: int
    inputs: list[Any]
    operations: tuple[Any, ...]
    grouping: Shuffle | None
    output: Shuffle | WriteJsonl | None
    scratch: str
    attempt: int = 0

    @property
    def key(self) -> tuple[int, int, int]:
        return self.stage, self.shard, self.attempt

    @property
    def name(self) -> str:
        return f"stage {self.stage}, shard {self.shard} of {self.total}"


@dataclass
class TaskResult:
    """What a task has made: paths by partition, records, or the error of a user's function."""

    shard: int
    parts: dict[int, str] = field(default_factory=dict)
    records: list[Any] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)
    error: BaseException | None = None


def increment(name: str, by: int = 1) -> None:
    """Count something; for users' functions."""
    counters = getattr(threading.current_thread(), "task_counters", None)
    if counters is not None:
        counters[name] += by


def run_task(task: Task) -> TaskResult:
    """Run a task; the result has the error of a user's function, anything else is raised."""
    result = TaskResult(task.shard)
    threading.current_thread().task_counters = result.counters
    try:
        _run(task, result)
    except OSError:
        raise  # storage, which another attempt may reach
    except Exception as error:
        error.add_note(f"{task.name}: in the user's function:\n{traceback.format_exc()}")
        result.error = _sendable(error)
    finally:
        threading.current_thread().task_counters = None
    return result


def _run(task: Task, result: TaskResult) -> None:
    records: Iterator[Any] = iter(task.inputs)
    if task.grouping is not None:
        records = _grouped(task.grouping, read_parts(task.inputs))
    for operation in task.operations:
        records = operation.apply(records)
    if isinstance(task.output, Shuffle):
        parts: dict[int, list[Any]] = {}
        for record in records:
            key = task.output.key(record)
            parts.setdefault(partition_of(key, task.output.shards), []).append((key, record))
        folder = f"{task.scratch}/stage-{task.stage}/{task.shard:05d}-{task.attempt}"
        result.parts = write_parts(folder, parts)
    elif isinstance(task.output, WriteJsonl):
        path = task.output.pattern.format(shard=task.shard, total=task.total)
        write_jsonl(path, records)
        result.records = [path]
    else:
        result.records = list(records)


def _grouped(shuffle: Shuffle, pairs: Iterator[Any]) -> Iterator[Any]:
    groups: dict[str, tuple[Any, list[Any]]] = {}
    for key, record in pairs:
        groups.setdefault(text_of(key), (key, []))[1].append(record)
    for _, (key, records) in sorted(groups.items()):
        yield shuffle.reducer(key, iter(records))


def _sendable(error: Exception) -> Exception:
    try:
        pickle.loads(cloudpickle.dumps(error))
    except Exception:
        plain = RuntimeError(f"{type(error).__name__}: {error}")
        for note in error.__notes__:
            plain.add_note(note)
        return plain
    return error.with_traceback(None)
