"""Run whole commands of `iris` with the test's fake client."""

import contextlib
import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest.mock import create_autospec

from iris.cli.context import CliContext
from iris.client import JobStatus, QueryResult, Stopped, TaskStatus, WorkerStatus
from iris.client.operator import Operator
from iris.client.types import LogLine
from iris.cluster.types import JobState
from rigging.errors import Denied, NotFound

Iris = Callable[..., tuple[int, str, str]]
"""Runs a command, and returns its exit code, stdout and stderr."""


def job(job_id: str, state: JobState = JobState.RUNNING, **fields: Any) -> JobStatus:
    parent = job_id.rpartition("/")[0]
    return JobStatus(job_id, state, parent_id=parent if parent.count("/") > 1 else "", **fields)


class Client:
    """A fake client of a cluster with the test's content. Requests are in `asked`, in order."""

    address = "127.0.0.1:1"
    user = "ann"
    now_ms: int | None = None

    def __init__(self, *jobs: JobStatus, prefix: str = "/ann") -> None:
        self.jobs = list(jobs)
        self.tasks: list[TaskStatus] = []
        self.lines: list[LogLine] = []
        self.cluster: Any = None
        self.refused: Denied | None = None
        self.asked: list[dict[str, Any]] = []
        self.answer: bool | None = True
        """The user's answer to questions; None for no user at the terminal."""
        self.questions: list[str] = []
        self.holds: dict[str, str] = {}
        self.looks: Iterator[list[WorkerStatus]] = iter(())
        """The result of each request for workers."""
        self.answers: dict[str, QueryResult] = {}
        """Answers to queries that contain these words."""
        self.operator: Any = create_autospec(Operator, instance=True)
        self._prefix = prefix

    def full_name_prefix(self) -> str:
        return self._prefix

    def status(self, job_id: str) -> JobStatus:
        for found in self.jobs:
            if found.job_id == job_id:
                return found
        raise NotFound(f"no job {job_id}")

    def list_jobs(self, prefix: str = "", states: Sequence[JobState] = (), limit: int = 0) -> list[JobStatus]:
        self.asked.append({"prefix": prefix, "states": list(states), "limit": limit})
        known = [found for found in self.jobs if found.job_id.startswith(prefix.removesuffix("*"))]
        return [found for found in known if not states or found.state in states][: limit or None]

    def list_tasks(self, job_id: str, limit: int = 0) -> list[TaskStatus]:
        return [task for task in self.tasks if task.task_id.rpartition("/")[0] == job_id][: limit or None]

    def read_logs(self, name: str, **options: Any) -> Iterator[LogLine]:
        self.asked.append({"name": name, **options})
        return iter(self.lines)

    def poll_jobs(self, job_ids: Sequence[str], *, seconds: float = 0) -> tuple[list[JobStatus], bool]:
        self.asked.append({"poll": list(job_ids)})
        return [self.status(job_id) for job_id in job_ids], True

    def stop_many(self, job_ids: Sequence[str], reason: str, *, include_children: bool) -> list[Stopped | Denied]:
        self.asked.append({"stop": list(job_ids), "include_children": include_children})
        return [self.refused or Stopped((job_id,)) for job_id in job_ids]

    def hold(self, job_id: str) -> str:
        return self.holds.get(job_id, "")

    release = hold

    def update(self, job_id: str, **changes: Any) -> None:
        self.asked.append({"update": job_id, **changes})

    def requeue(self, job_id: str) -> JobState:
        return self.status(job_id).state

    def workers(self, worker_ids: Sequence[str]) -> list[WorkerStatus]:
        return next(self.looks)

    def query(self, sql: str, max_rows: int = 0) -> QueryResult:
        for words, answer in self.answers.items():
            if words in sql:
                return answer
        raise Denied("jobs may not query the database")

    def cluster_status(self, all_workers: bool = False) -> Any:
        self.asked.append({"all_workers": all_workers})
        return self.cluster


class Context(CliContext):
    """A context with the test's client and, if given, the test's time."""

    def __init__(self, reached: Any, now_ms: int | None = None) -> None:
        super().__init__()
        self.reached, self._now_ms = reached, now_ms
        self._clock_s = 0.0
        self.clock, self.sleep = lambda: self._clock_s, self._sleep
        self.ask, self.is_interactive = self._ask, lambda: reached.answer is not None

    def _sleep(self, seconds: float) -> None:
        self._clock_s += seconds

    def _ask(self, question: str) -> bool:
        self.reached.questions.append(question)
        return bool(self.reached.answer)

    @contextlib.contextmanager
    def connect(self, *target: Any, **options: Any) -> Iterator[Any]:
        yield self.reached

    client = connect

    def now_ms(self) -> int:
        return super().now_ms() if self._now_ms is None else self._now_ms


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True
