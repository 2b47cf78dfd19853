"""A controller that was killed goes on as if it had never been away."""

from pathlib import Path

import pytest

from iris.controller.engine.load import load_view
from iris.core.rules.reduce import reduce
from iris.core.state.view import ClusterView
from iris.domain.events import Assigned, AttemptObserved, Event, JobSubmitted, StopRequested, WorkerConnected
from iris.domain.ids import AttemptId, JobId, TaskId, WorkerId
from iris.domain.job_spec import CommandEntrypoint, JobSpec
from iris.domain.resources import Resources
from iris.domain.states import TaskState
from iris.store.store import Store
from rigging.errors import Conflict

JOB, WORKER = JobId("/ann/train"), WorkerId("w1")
CORE = Resources(cpu_millis=1000)


def run(view: ClusterView, store: Store, *events: Event) -> None:
    for event in events:
        outcome = reduce(view, event, 1_000)
        view.apply(outcome.changes)
        store.commit(outcome.changes)


def test_an_attempt_on_its_way_out_holds_its_place_and_its_job_across_a_restart(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    view = load_view(store, ClusterView)
    spec = JobSpec(JOB, CommandEntrypoint(("sleep", "1000")), CORE)
    there = WorkerConnected(WORKER, "one", Resources(cpu_millis=2000))
    run(view, store, there, JobSubmitted(spec), Assigned(TaskId(f"{JOB}/0"), WORKER))
    run(view, store, StopRequested(JOB), JobSubmitted(spec))
    store.close()
    store = Store.open(tmp_path)
    view = load_view(store, ClusterView)
    assert view.committed(WORKER) == CORE
    assert view.held_counts == {JOB: 1}
    run(view, store, there)
    with pytest.raises(Conflict, match="while earlier attempts of its job are being stopped"):
        reduce(view, Assigned(TaskId(f"{JOB}/0"), WORKER), 2_000)
    run(view, store, AttemptObserved(AttemptId(f"{JOB}/0:0"), WORKER, TaskState.KILLED))
    run(view, store, Assigned(TaskId(f"{JOB}/0"), WORKER))
    assert store.load().stopping == ()
    store.close()
