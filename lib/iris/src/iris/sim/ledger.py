"""Records all commits beside the real store, to check that messages contain only committed state."""

import sqlite3
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from iris.core.state.changes import Changes
from iris.domain.entities import Job, Task, Worker
from iris.domain.events import JobSubmitted
from iris.domain.ids import AttemptId, JobId, TaskId, WorkerId, parse_attempt_id
from iris.domain.job_spec import JobSpec, awaited, is_gang
from iris.domain.states import JobState
from iris.rpc.generated import iris_pb2 as pb
from iris.sim.world import Crash
from iris.store.store import Store


class CommitFault(StrEnum):
    """A fault of one commit."""

    CRASH_BEFORE = "crash before the commit"
    CRASH_AFTER = "crash after the commit, before anybody hears of it"
    DISK_FULL = "disk full"
    SLOW = "slow commit"


@dataclass
class Ledger:
    """The committed records over all runs of the controller, and the checks of outgoing messages.

    Attributes:
        specs: The specs of all jobs by name, in order.
        granted: The worker of every attempt that was ever committed as live. violations: Premature messages.
        stop_sent: Attempts that a worker was asked to stop. unwanted: Attempts that a commit stopped.
        begun: Attempts whose process has started anywhere. running: Started attempts that have not ended. exits: The
        exits of the others.
        told: Attempts whose process was asked to end, also by a host that shuts down.
    """

    jobs: dict[JobId, Job] = field(default_factory=dict)
    tasks: dict[TaskId, Task] = field(default_factory=dict)
    workers: dict[WorkerId, Worker] = field(default_factory=dict)
    granted: dict[AttemptId, WorkerId] = field(default_factory=dict)
    stop_sent: set[AttemptId] = field(default_factory=set)
    unwanted: set[AttemptId] = field(default_factory=set)
    begun: Container[AttemptId] = ()
    running: Container[AttemptId] = ()
    exits: Mapping[AttemptId, int] = field(default_factory=dict)
    told: Container[AttemptId] = ()
    violations: list[str] = field(default_factory=list)
    commits: int = 0
    specs: dict[JobId, list[JobSpec]] = field(default_factory=dict)

    def take(self, changes: Changes) -> None:
        """Record a commit that is on disk."""
        self.commits += 1
        for record in changes.records:
            if isinstance(record.what, JobSubmitted):
                self.specs.setdefault(record.what.spec.job_id, []).append(record.what.spec)
        for job in changes.jobs.values():
            known = self.jobs.get(job.job_id)
            if known is not None and known.sequence != job.sequence:
                for index in range(known.spec.replicas):
                    self.tasks.pop(TaskId(f"{job.job_id}/{index}"), None)
            self.jobs[job.job_id] = job
        for task in changes.tasks.values():
            self.tasks[task.task_id] = task
            if task.worker_id is not None and task.attempt >= 0:
                self.granted[task.attempt_id] = task.worker_id
                self._inspect_waits(self.jobs[task.job_id])
        self.workers.update(changes.workers)
        # None: what was to stop may have ended within the same commit.
        self.unwanted |= {name for name, stopping in changes.stopping.items() if not (stopping and stopping.found)}
        # What had been told to stop before its worker was lost has no claim either.
        self.unwanted |= {name for name, lost in changes.lost.items() if lost and not lost.may_return}

    def _inspect_waits(self, job: Job) -> None:
        for name, condition in awaited(job.spec.after).items():
            other = self.jobs[name]
            # A greater number: it took the name of the one that was waited for.
            is_over = other.sequence > job.sequence or other.state.is_terminal
            if not is_over or (condition == "ok" and other.sequence < job.sequence and other.error):
                self.violations.append(f"{job.job_id} began although {name}:{condition} is {other.state.word}")

    def compare(self, store: Store) -> None:
        """Check at the start of a run that the store returns the committed records."""
        stored = store.load()
        jobs = {job.job_id: job for job in stored.jobs}
        tasks = {task.task_id: task for task in stored.tasks}
        workers = {worker.worker_id: worker for worker in stored.workers}
        self._compare("jobs", jobs, self.jobs)
        self._compare("tasks", tasks, self.tasks)
        self._compare("workers", workers, self._offline())

    def _compare(self, what: str, found: Mapping[Any, object], kept: Mapping[Any, object]) -> None:
        if found != kept:
            wrong = [name for name in {**found, **kept} if found.get(name) != kept.get(name)]
            self.violations.append(f"{what} {wrong[:3]} came back from the store other than they were committed")

    def _offline(self) -> dict[WorkerId, Worker]:
        """Return the workers without sessions, like a starting controller."""
        return {name: replace(worker, connected=False, is_late=False) for name, worker in self.workers.items()}

    # ---- what leaves the controller ----

    def inspect(self, answer: object) -> None:
        """Check a message against the committed state."""
        if isinstance(answer, pb.ControllerMessage):
            if answer.WhichOneof("kind") == "desired":
                self._inspect_desired(answer.desired)
        elif isinstance(answer, pb.SubmitJobResponse):
            if JobId(answer.job_id) not in self.jobs:
                self.violations.append(f"{answer.job_id} was acknowledged and is not committed")
        elif isinstance(answer, pb.StopJobResponse):
            for name in answer.stopped_job_ids:
                if not self.jobs[JobId(name)].state.is_terminal:
                    self.violations.append(f"the stop of {name} was acknowledged and is not committed")
        elif isinstance(answer, pb.WaitJobsResponse):
            for status in answer.jobs:
                self._inspect_status(status)
        elif isinstance(answer, pb.JobStatus):
            self._inspect_status(answer)

    def _inspect_status(self, status: pb.JobStatus) -> None:
        job = self.jobs.get(JobId(status.job_id))
        if job is None or int(job.state) != int(status.state):
            there = "nothing" if job is None else job.state.word
            shown = JobState(status.state).word
            self.violations.append(f"{status.job_id} was shown as {shown}; committed is {there}")

    def _inspect_desired(self, desired: pb.Desired) -> None:
        for run in desired.run:
            for ref in run.attempts:
                name = AttemptId(f"{run.launch.job_id}/{ref.task_index}:{ref.attempt}")
                if name not in self.granted:
                    self.violations.append(f"{name} was sent to a worker and is not committed")
        for stop in desired.stop:
            self.stop_sent.add(AttemptId(stop.attempt_id))
            if stop.attempt_id in self.running and self._has_claim(AttemptId(stop.attempt_id)):
                self.violations.append(
                    f"{stop.attempt_id} was told to stop ({stop.reason}), and no successor had begun"
                )
            if self._is_live(AttemptId(stop.attempt_id)):
                self.violations.append(
                    f"{stop.attempt_id} was told to stop ({stop.reason}) and lives by what is committed"
                )
        for ended in desired.forget:
            is_success = self.exits.get(AttemptId(ended)) == 0 and ended not in self.told
            if is_success and self._has_claim(AttemptId(ended)):
                self.violations.append(f"the success of {ended} was dropped; no successor had begun")
            if self._is_live(AttemptId(ended)):
                self.violations.append(f"the end of {ended} was acknowledged and is not committed")

    def _has_claim(self, name: AttemptId) -> bool:
        """Return whether a live job waits for an attempt's result: it was wanted, and no successor has started."""
        task_id, number = parse_attempt_id(name)
        task = self.tasks.get(task_id)
        job = None if task is None else self.jobs[task.job_id]
        if task is None or job is None or task.state.is_terminal or is_gang(job.spec) or job.spec.exclusive:
            return False
        if name in self.unwanted or not job.first_attempt <= number < task.next_attempt:
            return False
        later = range(number + 1, task.next_attempt)
        return not any(AttemptId(f"{task_id}:{other}") in self.begun for other in later)

    def _is_live(self, name: AttemptId) -> bool:
        task_id, number = parse_attempt_id(name)
        task = self.tasks.get(task_id)
        return task is not None and task.attempt == number and task.state.is_live


class WatchedStore:
    """The real store of one run of the controller, with simulated faults of commits.

    Args:
        next_fault: Returns the fault of the current commit. delay: Delays the process by a random time.
        is_dead: Returns whether the process has been killed, so that nothing reaches the disk.
    """

    def __init__(
        self,
        store: Store,
        ledger: Ledger,
        next_fault: Callable[[], CommitFault | None],
        delay: Callable[[], None],
        is_dead: Callable[[], bool],
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._next_fault = next_fault
        self._delay = delay
        self._is_dead = is_dead

    def commit(self, changes: Changes) -> None:
        if self._is_dead():
            return
        fault = self._next_fault()
        if fault is CommitFault.CRASH_BEFORE:
            raise Crash(str(fault))
        if fault is CommitFault.DISK_FULL:
            raise sqlite3.OperationalError("database or disk is full")
        self._store.commit(changes)
        self._ledger.take(changes)
        if fault is CommitFault.CRASH_AFTER:
            raise Crash(str(fault))
        if fault is CommitFault.SLOW:
            self._delay()
