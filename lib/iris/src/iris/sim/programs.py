"""The behaviour of the simulated commands, and the expected ends of their jobs."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from iris.domain.ids import JobId
from iris.domain.job_spec import JobSpec
from iris.domain.states import FailureKind, JobState
from iris.worker.prepare.task_env import PreparedEnvironment
from iris.worker.types import Launch, PreparationFailed


@dataclass(frozen=True, slots=True)
class Program:
    """The behaviour of all tasks of one job.

    Args:
        seconds: Usual duration of a run. spread: Relative variation of durations.
        long_s: Duration of one run in ten; 0 for none.
        exit_code: The exit code of an undisturbed run. signal: The signal that ends it instead.
        fails_below: Attempts with a lower number end with code 1 regardless of `exit_code`.
        bad_tasks: Indexes of tasks that always end with code 1.
        blames_peer: Whether a failing run says that another member of its gang was gone.
        ignores_term: Whether only SIGKILL ends it.
        resumes: Whether a run saves a checkpoint when it has a notice, and the next one continues from there; `seconds`
            is the time of all runs together.
        output: Number of bytes that a run writes.
        cannot_start: Whether the command does not exist.
        prepare_s: Time to prepare its environment; 0 for none. prepare_fails: Whether the preparation fails.
        children: Jobs that the first task submits and waits for; the task ends with code 3 unless all succeed.
    """

    seconds: float = 5.0
    spread: float = 0.5
    long_s: float = 0.0
    exit_code: int = 0
    signal: int = 0
    fails_below: int = 0
    bad_tasks: frozenset[int] = frozenset()
    blames_peer: bool = False
    ignores_term: bool = False
    resumes: bool = False
    output: int = 0
    cannot_start: bool = False
    prepare_s: float = 0.0
    prepare_fails: bool = False
    children: tuple["PlannedJob", ...] = ()

    def duration(self, source: random.Random) -> float:
        if self.long_s and source.random() < 0.1:
            return self.long_s
        return self.seconds * source.uniform(1 - self.spread, 1 + self.spread)

    def ending(self, index: int, number: int) -> tuple[int, int]:
        """Return (code, signal) of an undisturbed run of attempt `number` of task `index`."""
        if self.signal:
            return 0, self.signal
        if number < self.fails_below or index in self.bad_tasks:
            return 1, 0
        return self.exit_code, 0


class Preparer:
    """A preparer that takes time and sometimes fails, in place of BundlePreparer."""

    def __init__(self, program_of: Callable[[JobId, int], Program]) -> None:
        self._program_of = program_of

    def ready(self, launch: Launch) -> PreparedEnvironment | None:
        del launch  # nothing is kept
        return None

    async def prepare(self, launch: Launch) -> PreparedEnvironment:
        program = self._program_of(JobId(launch.job_id), -1)
        await asyncio.sleep(program.prepare_s)
        if program.prepare_fails:
            raise PreparationFailed(FailureKind.ENVIRONMENT, "no such package")
        return PreparedEnvironment()

    def compiled(self, tree: Path, python: str) -> str:
        del tree, python
        return ""

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """One job: its request, its behaviour, its times, and its allowed ends.

    Args:
        submit_s: When its user submits it. stop_s: When the user stops it; 0 for never.
        again: A job to submit with the same name after the end of this one.
        allowed: States in which it may end.
        is_refused: Whether the controller must refuse it.
        replaces: Whether `again` is submitted at `stop_s` to replace this one, instead of a stop.
    """

    spec: JobSpec
    program: Program
    submit_s: float = 0.0
    stop_s: float = 0.0
    again: "PlannedJob | None" = None
    allowed: frozenset[JobState] = frozenset({JobState.SUCCEEDED})
    is_refused: bool = False
    replaces: bool = False
