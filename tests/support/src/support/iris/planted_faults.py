"""Bugs to plant in the product, with the broken promise and seeds that catch it.

Each imitates a plausible mistake.
"""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from iris.controller import context
from iris.controller.engine import load, transaction
from iris.controller.workers import sessions
from iris.controller.workers.connected import ConnectedWorker, Report
from iris.controller.workers.sessions import Sessions
from iris.core.ledger.meter import WorkerMeter
from iris.core.rules import after_rules, draft, job_rules, return_rules, silence_rules, task_rules
from iris.core.rules.contact import ContactRules
from iris.core.rules.draft import Draft
from iris.core.rules.reconcile import Reconciliation, reconcile
from iris.core.state.booking import Booking
from iris.core.state.load import WorkerLoad
from iris.core.state.view import ClusterView
from iris.domain.entities import Task
from iris.domain.events import AttemptObserved, LendCpu
from iris.domain.ids import attempt_id
from iris.domain.states import FailureKind, PreemptionReason, TaskState
from iris.rpc.generated import iris_pb2 as pb
from iris.sched import gang
from iris.sim.run import run_seed
from iris.sim.scenario import Scenario, make_preemptions, make_scenario
from iris.store.store import Store
from iris.worker.attempts.attempt import Attempt
from iris.worker.attempts.prefill import PrefillQueue
from iris.worker.attempts.supervisor import Supervisor
from iris.worker.connection import wire
from iris.worker.types import DesiredChange, Observation

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Planted:
    """One fault.

    Args:
        plant: Plants the bug until the end of the test. seeds: Some seeds that catch it.
        make: Returns the scenario of a seed.
    """

    plant: Callable[[Patch], None]
    seeds: tuple[int, ...]
    make: Callable[[int], Scenario] = make_scenario


def _believe_former_attempts(patch: Patch) -> None:
    """Fencing: a report of an earlier attempt counts for the current attempt."""
    real = task_rules.observe

    def observe(draft: Draft, event: AttemptObserved) -> Any:
        task, _ = draft.view.find_attempt(event.attempt_id)
        if task is not None and task.worker_id is not None:
            current = attempt_id(task.task_id, task.attempt)
            event = replace(event, attempt_id=current, worker_id=task.worker_id)
        return real(draft, event)

    patch.setattr(task_rules, "observe", observe)


def _answer_before_the_commit(patch: Patch) -> None:
    """Callers are answered before the transaction is written, together with the next one."""
    real = Store.commit
    late: dict[Store, tuple[Any, ...]] = {}

    def commit(self: Store, *records: Any, **more: Any) -> None:
        if self in late:
            real(self, *late.pop(self))
        late[self] = records

    patch.setattr(Store, "commit", commit)


def _forget_before_the_commit(patch: Patch) -> None:
    """A worker is told to forget an end as soon as it has reported it."""
    real = Sessions.report

    def report(self: Sessions, session: ConnectedWorker, report: Report) -> None:
        if report.event.state.is_terminal:
            session.orders.forget(report.event.attempt_id)
        real(self, session, report)

    patch.setattr(Sessions, "report", report)


def _give_back_twice(patch: Patch) -> None:
    """The resources of an ended attempt are released twice."""
    real = WorkerLoad.remove

    def remove(self: WorkerLoad, booking: Booking) -> None:
        real(self, booking)
        self.cpu_millis -= booking.cpu_millis

    patch.setattr(WorkerLoad, "remove", remove)


def _give_back_at_once(patch: Patch) -> None:
    """A stopping attempt releases its resources before it has ended."""
    real = Draft.stop_attempt

    def stop_attempt(self: Draft, task: Task, reason: str) -> None:
        real(self, task, reason)
        self.changes.stopping.pop(task.attempt_id)

    patch.setattr(Draft, "stop_attempt", stop_attempt)


def _no_inventory(patch: Patch) -> None:
    """A worker that reconnects does not report its attempts."""
    patch.setattr(Supervisor, "inventory", lambda self: [])


def _start_again_under_the_same_number(patch: Patch) -> None:
    """Attempts that a restarted worker lacks are sent again as if they had never started."""

    def same(view: ClusterView, worker_id: Any, new_instance: bool, inventory: Any) -> Reconciliation:
        return reconcile(view, worker_id, False, inventory)

    patch.setattr(sessions, "reconcile", same)


def _restart_one_member_alone(patch: Patch) -> None:
    """A gang's other members continue when one is retried."""
    patch.setattr(job_rules, "restart_with", lambda draft, member: None)


def _share_hosts(patch: Patch) -> None:
    """A gang may be placed on the hosts of another gang."""
    patch.setattr(gang, "usable", lambda host, job_id: True)
    patch.setattr(task_rules, "is_gang", lambda spec: False)


def _forget_what_is_stopping(patch: Patch) -> None:
    """A restarted controller does not know the stopping attempts."""

    def load_view(store: Store, kind: Any) -> Any:
        stored = store.load(lean=True)
        return kind.load(stored.jobs, stored.tasks, stored.workers, store, stored.budgets, stored.endpoints)

    from iris.sim import controller

    patch.setattr(load, "load_view", load_view)
    patch.setattr(controller, "load_view", load_view)


def _forget_ends_of_tasks_that_are_no_more(patch: Patch) -> None:
    """An inventory reports the end of a task that a new job of the same name lacks, and no resources are freed."""

    def lossy(view: ClusterView, worker_id: Any, new_instance: bool, inventory: Any) -> Reconciliation:
        found = reconcile(view, worker_id, new_instance, inventory)
        events = [
            event
            for event in found.events
            if not isinstance(event, AttemptObserved) or view.find_attempt(event.attempt_id)[0] is not None
        ]
        return replace(found, events=events)

    patch.setattr(sessions, "reconcile", lossy)


def _no_idempotency(patch: Patch) -> None:
    """A repeated submission counts as a new one."""
    real = context.Controller.admit

    def admit(self: Any, turn: Any, spec: Any, key: str, *more: Any) -> Any:
        return real(self, turn, spec, "", *more)

    patch.setattr(context.Controller, "admit", admit)


def _charge_the_host_for_user_errors(patch: Patch) -> None:
    """A command's own failure counts as a lost worker, and is retried forever."""
    patch.setattr(task_rules, "HOST_FAULTS", task_rules.HOST_FAULTS | {FailureKind.USER})


def _charge_the_user_for_lost_workers(patch: Patch) -> None:
    """A lost worker counts as a failure of the user's code."""
    real = task_rules.lose

    def lose(draft: Draft, task: Task, reason: str, is_charged: bool = True) -> Any:
        failed = AttemptObserved(task.attempt_id, task.worker_id or "", TaskState.FAILED, 1)  # type: ignore[arg-type]
        return task_rules.fail(draft, task, failed) if is_charged else real(draft, task, reason, is_charged)

    from iris.core.rules import worker_rules

    patch.setattr(worker_rules, "lose", lose)


def _give_up_exclusive_attempts_with_their_worker(patch: Patch) -> None:
    """Exclusive attempts restart elsewhere when their worker is lost, like others."""
    for module in (silence_rules, draft):
        patch.setattr(module, "waits_for_host", lambda spec: False)


def _fence_by_half_the_time(patch: Patch) -> None:
    """The controller counts exclusive attempts as ended before their host has ended them."""
    patch.setattr(ContactRules, "fenced_after_ms", lambda self, spec: spec.fence_after_ms // 2)


def _begin_prefilled_at_once(patch: Patch) -> None:
    """A worker starts prefilled attempts immediately."""
    real = wire.desired_from_wire

    def desired_from_wire(message: pb.Desired) -> DesiredChange:
        change = real(message)
        return replace(change, start=tuple(replace(request, prefilled=False) for request in change.start))

    patch.setattr(wire, "desired_from_wire", desired_from_wire)


def _begin_what_was_handed_back(patch: Patch) -> None:
    """A worker that returns an attempt leaves it in its queue."""
    real = PrefillQueue.remove

    def remove(self: PrefillQueue, attempt: Attempt) -> None:
        if attempt.is_prefilled:
            real(self, attempt)
            self.add(attempt)
            attempt.is_prefilled = False

    patch.setattr(PrefillQueue, "remove", remove)


def _stop_what_returns(patch: Patch) -> None:
    """Abandoned attempts are stopped when their host returns, even before a successor has begun."""
    patch.setattr(return_rules, "hear", lambda draft, event: None)


def _use_burnt_numbers_again(patch: Patch) -> None:
    """The number of a returned successor is used twice."""
    patch.setattr(Task, "next_attempt", property(lambda self: self.attempt + 1))


def _count_silent_workers(patch: Patch) -> None:
    """The uses of a worker's time exceed its capacity."""
    real = WorkerMeter.set_capacity
    patch.setattr(WorkerMeter, "set_capacity", lambda self, cpu, chips, _, now: real(self, cpu, chips, True, now))


def _leave_lent_cpu_out_of_the_history(patch: Patch) -> None:
    """Completeness: replaying the stored events leads to other decisions."""
    patch.setattr(transaction, "_UNRECORDED", (*transaction._UNRECORDED, LendCpu))


def _take_every_end_for_success(patch: Patch) -> None:
    """A job that waits for another's success starts after any end."""
    patch.setattr(after_rules, "is_met", lambda condition, state: True)


def _tell_only_the_host_that_ends(patch: Patch) -> None:
    """The members of a gang on other hosts are stopped without a notice when the platform takes one host."""
    patch.setattr(Sessions, "_preempt_gangs", lambda self, worker_id, ending: set())


def _stop_at_a_notice_like_at_sigterm(patch: Patch) -> None:
    """A worker whose host ends stops its tasks without a notice."""
    real = Supervisor.stop_all

    async def stop_all(self: Supervisor, reason: str, grace_ms: int, notice: PreemptionReason | None = None) -> None:
        del notice
        await real(self, reason, grace_ms)

    patch.setattr(Supervisor, "stop_all", stop_all)


def _charge_announced_ends(patch: Patch) -> None:
    """An attempt that ends after the notice of its host's end counts as a failure of the user's code."""
    real = wire.observations_to_wire

    def observations_to_wire(observations: Iterable[Observation]) -> list[pb.Observation]:
        def charge(seen: Observation) -> Observation:
            if seen.failure is not FailureKind.PREEMPTED:
                return seen
            return replace(seen, state=TaskState.FAILED, failure=FailureKind.USER, exit_code=1)

        return real(map(charge, observations))

    patch.setattr(wire, "observations_to_wire", observations_to_wire)


PLANTED: dict[str, Planted] = {
    function.__name__.strip("_"): Planted(function, seeds)
    for function, seeds in (
        (_believe_former_attempts, (0, 1, 3)),
        (_answer_before_the_commit, (1, 2, 3)),
        (_forget_before_the_commit, (0, 1, 2)),
        (_give_back_twice, (0, 1, 2)),
        (_give_back_at_once, (0, 3, 4)),
        (_no_inventory, (4,)),
        (_start_again_under_the_same_number, (12, 22, 38)),
        (_restart_one_member_alone, (0, 25, 43)),
        (_share_hosts, (0, 28, 39)),
        (_forget_what_is_stopping, (6,)),
        (_forget_ends_of_tasks_that_are_no_more, (81, 134)),
        (_no_idempotency, (3, 5)),
        (_charge_the_host_for_user_errors, (0, 2, 5)),
        (_charge_the_user_for_lost_workers, (1, 7)),
        (_give_up_exclusive_attempts_with_their_worker, (3, 7, 21)),
        (_fence_by_half_the_time, (3, 28)),
        (_begin_prefilled_at_once, (3, 4, 5)),
        (_begin_what_was_handed_back, (3, 4, 5)),
        (_stop_what_returns, (1, 7, 28)),
        (_use_burnt_numbers_again, (630, 1543)),
        (_leave_lent_cpu_out_of_the_history, (3, 5)),
        (_count_silent_workers, (1, 2, 3)),
        (_take_every_end_for_success, (3, 4, 7)),
        (_charge_announced_ends, (8,)),
    )
}


PLANTED |= {
    function.__name__.strip("_"): Planted(function, seeds, functools.partial(make_preemptions, rounds=2))
    for function, seeds in (
        (_tell_only_the_host_that_ends, (0,)),
        (_stop_at_a_notice_like_at_sigterm, (0,)),
    )
}


def caught_by(seeds: Iterable[int], make: Callable[[int], Scenario] = make_scenario) -> list[int]:
    """Return the seeds that now break a promise."""
    return [seed for seed in seeds if run_seed(seed, make=make).violations]
