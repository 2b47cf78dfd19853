"""Behaviour of the simulated commands, and with it the ends that their jobs must have."""

import random
from dataclasses import dataclass

from iris.domain.job_spec import JobSpec
from iris.domain.states import JobState


@dataclass(frozen=True, slots=True)
class Program:
    """The behaviour of every task of one job.

    Args:
        seconds: How long a run usually takes. spread: By which share runs differ.
        long_s: One run in ten takes so long; 0: none.
        exit_code: Of an undisturbed run; 0: success. signal: It ends by that signal instead.
        fails_below: Attempts numbered below this end with code 1 whatever `exit_code` says.
        bad_tasks: Tasks with these indexes always end with code 1.
        ignores_term: It ends only by SIGKILL.
        output: Bytes that a run writes.
        cannot_start: The command does not exist.
        prepare_s: Time to make its environment ready; 0: there is nothing to make. prepare_fails: It cannot be made.
        children: Submitted by the first task, and waited for; unless all succeed, it ends with code 3.
    """

    seconds: float = 5.0
    spread: float = 0.5
    long_s: float = 0.0
    exit_code: int = 0
    signal: int = 0
    fails_below: int = 0
    bad_tasks: frozenset[int] = frozenset()
    ignores_term: bool = False
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
        """(code, signal) of an undisturbed run of attempt `number` of task `index`."""
        if self.signal:
            return 0, self.signal
        if number < self.fails_below or index in self.bad_tasks:
            return 1, 0
        return self.exit_code, 0


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """One job: what is asked for, what it does, when, and how it may end.

    Args:
        submit_s: When its user submits it. stop_s: When the user stops it; 0: never.
        again: Submitted under the same name once this one has ended.
        allowed: States in which it may end.
        is_refused: The controller must refuse it.
        replaces: `again` is submitted at `stop_s` to take this one's place, instead of a stop.
    """

    spec: JobSpec
    program: Program
    submit_s: float = 0.0
    stop_s: float = 0.0
    again: "PlannedJob | None" = None
    allowed: frozenset[JobState] = frozenset({JobState.SUCCEEDED})
    is_refused: bool = False
    replaces: bool = False
