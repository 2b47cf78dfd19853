from collections.abc import Callable

import pytest

from iris.core.rules import draft, gang_rules, silence_rules
from iris.core.rules.contact import ContactRules
from iris.core.state.booking import Booking
from iris.core.state.load import WorkerLoad
from iris.core.state.view import ClusterView
from iris.domain.entities import Task, Worker
from iris.domain.states import PriorityBand
from iris.sched import fit, gang, plan, preempt
from iris.testing.scheduling import InMemoryCluster, resources


@pytest.fixture
def cluster() -> InMemoryCluster:
    """A cluster with one worker, w, of 4 cores and 16 GiB."""
    made = InMemoryCluster()
    made.connect("w", resources(4, 16, 100))
    return made


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Break one rule of the core or the scheduler by name; test_machine.py lists the names."""

    def break_rule(fault: str) -> None:
        _plant(fault, monkeypatch)

    return break_rule


def _plant(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if fault == "leak":
        original_remove = WorkerLoad.remove

        def remove(self: WorkerLoad, booking: Booking) -> None:
            original_remove(self, booking)
            self.memory_bytes += booking.resources.memory_bytes

        monkeypatch.setattr(WorkerLoad, "remove", remove)
    elif fault == "fence":
        original_find = ClusterView.find_attempt

        def find(self: ClusterView, name: str) -> tuple[Task | None, int]:
            task, number = original_find(self, name)
            return task, task.attempt if task is not None else number

        monkeypatch.setattr(ClusterView, "find_attempt", find)
    elif fault == "lone_restart":
        monkeypatch.setattr(gang_rules, "restart_with", lambda draft, member: None)
    elif fault == "shared_hosts":
        monkeypatch.setattr(gang, "usable", lambda host, job_id: True)
    elif fault == "sideways":
        original_units = preempt.Victims.units_on

        def units_on(self: preempt.Victims, host: fit.Host, band: PriorityBand) -> list[preempt.Unit]:
            return original_units(self, host, PriorityBand(max(band - 1, 1)))

        monkeypatch.setattr(preempt.Victims, "units_on", units_on)
    elif fault == "early_fence":
        monkeypatch.setattr(ContactRules, "fenced_after_ms", lambda self, spec: spec.fence_after_ms // 2)
    elif fault == "lost_exclusive":
        for module in (silence_rules, draft):
            monkeypatch.setattr(module, "waits_for_host", lambda spec: False)
    elif fault == "late":
        monkeypatch.setattr(Worker, "is_open", property(lambda worker: worker.connected and not worker.cordon_reason))
    elif fault == "cordon":

        def all_hosts(view: ClusterView, among: object = None) -> list[fit.Host]:
            found = enumerate(view.workers.values())
            return [fit.Host(worker, view.loads[worker.worker_id], order) for order, worker in found]

        monkeypatch.setattr(plan, "hosts_of", all_hosts)
