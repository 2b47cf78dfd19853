"""The autoscaler with a simulated cloud: what it stores, asks and answers, in virtual time."""

import asyncio
import re
from dataclasses import replace

import pytest

from iris.autoscale.model import Outcome, SliceRecord, SliceState
from iris.core.state.changes import Changes
from iris.domain.events import PlaceClosed, SliceChanged
from iris.domain.ids import JobId
from iris.domain.scale_groups import ScaleGroup
from iris.sim.fleet.cloud import Machine, Weather
from iris.sim.fleet.run import EPOCH_MS, HOST, FleetSimulation
from rigging.errors import Conflict, NotFound, Unavailable

ONE = ScaleGroup("one", HOST, max_slices=6)
TWO = ScaleGroup("two", HOST, hosts_per_slice=2, max_slices=2, priority=200)


def simulated(*groups: ScaleGroup, weather: Weather | None = None) -> FleetSimulation:
    simulation = FleetSimulation(weather=weather, groups=groups or (ONE, TWO))
    simulation.run(5)  # the first list
    simulation.cloud.calls.clear()
    return simulation


def states(simulation: FleetSimulation) -> dict[str, str]:
    return {name: record.state.name.lower() for name, record in simulation.autoscaler.slices.items()}


def calls(simulation: FleetSimulation) -> list[str]:
    assert not simulation.cloud.violations
    assert not simulation.world.problems
    return [f"{call} {name}" for call, name in simulation.cloud.calls if name]


def ask(simulation: FleetSimulation, call):
    """Await a call in the controller's loop."""
    found: list[object] = []

    async def answered() -> None:
        try:
            found.append(await call)
        except Exception as error:
            found.append(error)

    simulation.node.run(lambda: asyncio.get_running_loop().create_task(answered()))
    simulation.run(1)
    return found[0]


def test_demand_becomes_slices_within_a_second_and_unused_ones_go():
    simulation = simulated()
    simulation.want(2)
    simulation.run(1)
    assert calls(simulation) == ["create one-0", "create one-1"]
    simulation.run(30)
    assert states(simulation) == {"one-0": "joined", "one-1": "joined"}
    simulation.want(1)
    simulation.run(200)
    assert calls(simulation)[2:] == ["delete one-1"]
    assert states(simulation) == {"one-0": "joined", "one-1": "gone"}
    assert list(simulation.controller.view.workers) == ["one-0-w0"], "the worker of the slice is forgotten"
    told = [what for what in simulation.controller.records if isinstance(what, SliceChanged)]
    assert [what.became for what in told if what.subject == "one-1"] == [
        "wanted", "requested", "booting", "joined", "leaving", "gone",
    ]  # fmt: skip
    assert told[-2] == SliceChanged("one-1", "one", "leaving", "unused for 120 s")


def test_nothing_is_called_before_its_row_is_stored():
    simulation = simulated()
    simulation.rows.fails = lambda: True
    simulation.want(1)
    simulation.run(30)
    assert calls(simulation) == []
    simulation.rows.fails = lambda: False
    simulation.run(11)
    assert calls(simulation) == ["create one-0"]
    simulation.want(0)
    simulation.rows.fails = lambda: True
    simulation.run(200)
    assert calls(simulation) == ["create one-0"]
    simulation.rows.fails = lambda: False
    simulation.run(11)
    assert calls(simulation) == ["create one-0", "delete one-0"]


def test_nothing_is_called_before_its_row_is_as_durable_as_the_cluster_promises(monkeypatch):
    simulation = simulated(ONE)
    replicated: asyncio.Future[None] = asyncio.Future(loop=simulation.node)
    monkeypatch.setattr(simulation.controller, "confirm", lambda: asyncio.wait([replicated]))
    simulation.want(1)
    simulation.run(30)
    assert (states(simulation), calls(simulation)) == ({"one-0": "wanted"}, [])
    simulation.node.run(replicated.set_result, None)
    simulation.run(1)
    assert calls(simulation) == ["create one-0"]


@pytest.mark.parametrize("weather", [Weather(loses_answer=1), Weather(raises=1), Weather(does_nothing=1)])
def test_a_call_without_an_answer_is_judged_by_lists_and_doubles_nothing(weather):
    simulation = simulated(ONE)
    simulation.cloud.weather = weather
    simulation.want(1)
    simulation.run(15)
    simulation.cloud.weather = Weather()
    simulation.run(300)
    live = [name for name, state in states(simulation).items() if state == "joined"]
    assert list(simulation.cloud.present()) == live
    assert len(live) == 1
    assert not calls(simulation)[2:], "at most one more is created, when lists lack the first"


@pytest.mark.parametrize("weather", [Weather(refuses=1), Weather(late_refusal=1)])
def test_a_refusal_at_once_or_later_closes_the_group_and_the_next_one_is_tried(weather):
    simulation = simulated()
    simulation.cloud.weather = replace(weather, refusals=(Outcome.STOCK_OUT,))
    simulation.want(1)
    simulation.run(0.2)
    simulation.cloud.weather = Weather()
    simulation.run(25)
    assert states(simulation)["two-0"] == "joined"
    assert states(simulation)["one-0"] in ("failed", "gone")
    (closed,) = [what for what in simulation.controller.records if isinstance(what, PlaceClosed)]
    assert (closed.subject, closed.outcome) == ("group one", "stock-out")
    assert simulation.rows.closures["group one"].until_ms > simulation.clock_ms()
    assert simulation.autoscaler.plan.groups["one"].outcome.startswith("stock-out")


def test_a_lost_host_ends_its_slice_whose_hosts_are_drained_before_it_is_deleted():
    simulation = simulated(TWO)
    simulation.want(2)
    simulation.run(15)
    assert states(simulation) == {"two-0": "joined"}
    simulation.cloud.machines["two-0"].hosts_lost = (1,)
    simulation.run(60)
    assert states(simulation) == {"two-0": "gone", "two-1": "joined"}
    assert simulation.controller.drained[:2] == ["two-0-w0", "two-0-w1"]
    assert simulation.autoscaler.slices["two-0"].reason == "host 1 of 2 lost"


def test_hosts_that_join_while_their_slice_is_deleted_get_no_tasks():
    simulation = simulated(replace(ONE, min_slices=1), weather=Weather(boot_s=(20, 20), delete_s=(9, 9)))
    ask(simulation, simulation.autoscaler.delete_slice("one-0", "ann"))
    simulation.cloud.machines["one-0"].gone_s = 0  # it still boots
    simulation.run(18)
    assert simulation.controller.view.workers["one-0-w0"].cordon_reason == "deleted by ann"


def test_what_is_listed_without_a_row_is_adopted_and_of_an_unknown_group_deleted():
    simulation = FleetSimulation(groups=(ONE,))
    simulation.cloud.machines |= {"one-7": Machine("one", 0), "old-3": Machine("old", 0)}
    simulation.want(1)
    simulation.run(60)
    assert states(simulation) == {"one-7": "joined", "old-3": "gone"}
    assert calls(simulation) == ["delete old-3"], "the adopted one serves"


def test_a_restart_finishes_what_was_begun_under_the_same_names():
    simulation = simulated()
    for number, state in enumerate((SliceState.WANTED, SliceState.REQUESTED, SliceState.LEAVING)):
        now_ms = EPOCH_MS + number
        simulation.rows.slices[f"one-{number}"] = SliceRecord(f"one-{number}", "one", state, now_ms, now_ms)
    simulation.rows.slices["gone-0"] = SliceRecord("gone-0", "gone", SliceState.REQUESTED, EPOCH_MS, EPOCH_MS)
    simulation.cloud.machines["one-2"] = Machine("one", 0)
    simulation.want(2)
    simulation.restart()
    simulation.run(60)
    assert set(calls(simulation)) == {"create one-0", "create one-1", "delete one-2", "delete gone-0"}
    assert states(simulation) == {"one-0": "joined", "one-1": "joined", "one-2": "gone", "gone-0": "gone"}


def test_where_nothing_can_be_listed_nothing_is_created():
    simulation = simulated(ONE, weather=Weather(hides_a_group=1))
    simulation.want(1)
    simulation.run(60)
    assert calls(simulation) == []
    reason = simulation.autoscaler.reason(JobId("/u/job"))
    closed = r"one is closed \(unknown: zone is away\), next try at [\d:]{8} UTC"
    assert re.fullmatch(rf"{closed}; capacity is missing since [\d:]{{8}} UTC", reason)
    simulation.cloud.weather, simulation.cloud.troubles = Weather(), {"one": "h7 is out of reach"}
    simulation.run(15)
    assert calls(simulation) == ["create one-0"]
    assert simulation.autoscaler.plan.groups["one"].trouble == "h7 is out of reach"


def test_a_slice_whose_place_cannot_be_listed_is_not_lost():
    simulation = simulated(ONE)
    simulation.want(1)
    simulation.run(15)
    simulation.cloud.weather = Weather(hides_a_group=1)
    simulation.run(100)
    simulation.cloud.weather = Weather(lags=1)
    simulation.run(15)
    assert states(simulation) == {"one-0": "joined"}
    simulation.run(10)
    assert states(simulation)["one-0"] == "gone", "two complete lists lacked it"


@pytest.mark.parametrize(("back_s", "after"), [(100, {"two-0": "joined"}), (400, {"two-0": "gone", "two-1": "joined"})])
def test_hosts_may_start_together_with_their_controller(back_s, after):
    simulation = simulated(TWO)
    simulation.want(2)
    simulation.run(15)
    machine = simulation.cloud.machines["two-0"]
    machine.ready_s = simulation.world.now + back_s
    simulation.controller.turn()
    simulation.restart()
    simulation.run(500)
    assert states(simulation) == after


@pytest.mark.parametrize(("has_returned", "kept_s"), [(False, 115), (True, 0)])
def test_a_host_that_does_not_return_with_the_others_or_is_lost_again_is_lost(has_returned, kept_s):
    simulation = simulated(TWO)
    simulation.want(2)
    simulation.run(15)
    first, second = simulation.controller.view.workers.values()
    away = [replace(worker, connected=False) for worker in (first, second)]
    simulation.controller.view.apply(Changes.of(workers=[*away]))
    simulation.restart()
    simulation.want(0)
    back = [first, replace(away[1], last_seen_at_ms=EPOCH_MS if has_returned else 0)]
    simulation.controller.turn = lambda: simulation.controller.view.apply(Changes.of(workers=[*back]))  # type: ignore[method-assign]
    simulation.run(kept_s)
    assert states(simulation) == {"two-0": "joined"}
    simulation.run(20)
    assert states(simulation)["two-0"] in ("leaving", "gone")


def test_capacity_that_a_provider_refuses_for_long_is_told_once():
    simulation = simulated(replace(ONE, max_slices=2))
    simulation.want(3)
    simulation.run(2000)
    assert not simulation.controller.missing, "its maximum is no news"
    simulation.want(0)
    simulation.run(200)
    simulation.cloud.weather = Weather(late_refusal=1, refusals=(Outcome.STOCK_OUT,))
    simulation.want(2)
    for told in (0, 1, 1):
        simulation.run(1500)
        assert len(simulation.controller.missing) == told
    (missing,) = simulation.controller.missing
    assert (missing.group, missing.outcome.split(":")[0]) == ("one", "stock-out")
    simulation.cloud.weather = Weather()
    simulation.run(1000)
    simulation.cloud.weather = Weather(late_refusal=1, refusals=(Outcome.STOCK_OUT,))
    simulation.want(0)
    simulation.run(300)
    simulation.want(2)
    simulation.run(2500)
    assert len(simulation.controller.missing) == 2, "it is missing again"


def test_users_create_slices_that_stay_and_delete_any():
    simulation = simulated(replace(ONE, max_slices=1))
    scaler = simulation.autoscaler
    assert ask(simulation, scaler.create_slice("one", "ann")) == "one-0"
    simulation.run(1000)
    assert states(simulation) == {"one-0": "joined"}, "it is left alone"
    refused = ask(simulation, scaler.create_slice("one", "ann"))
    assert isinstance(refused, Conflict)
    assert "has 1 slices, its max_slices" in str(refused)
    unknown = ask(simulation, scaler.create_slice("tpu", "ann"))
    assert isinstance(unknown, NotFound)
    assert "the cluster file has one" in str(unknown)
    unknown = ask(simulation, scaler.delete_slice("one-1", "bob"))
    assert isinstance(unknown, NotFound)
    assert "there are one-0" in str(unknown)
    simulation.rows.fails = lambda: True
    assert isinstance(ask(simulation, scaler.delete_slice("one-0", "bob")), Unavailable)
    simulation.rows.fails = lambda: False
    simulation.run(60)
    assert states(simulation) == {"one-0": "gone"}
    assert simulation.autoscaler.slices["one-0"].reason == "deleted by bob"


def test_the_end_of_a_cluster_deletes_all_slices_and_names_those_that_stay():
    simulation = simulated(replace(ONE, min_slices=2))
    simulation.run(15)
    ask(simulation, simulation.autoscaler.create_slice("two", "ann"))
    simulation.want(4)
    assert ask(simulation, simulation.autoscaler.end("bob")) == []
    simulation.run(60)
    assert set(states(simulation).values()) == {"gone"}
    assert not simulation.cloud.present()
    simulation = simulated(replace(ONE, min_slices=1))
    simulation.run(15)
    simulation.cloud.weather.refuses = 1
    found: list[object] = []
    simulation.node.run(lambda: asyncio.ensure_future(ended(simulation, found)))
    simulation.run(90)
    assert found == [["one-0"]]


async def ended(simulation: FleetSimulation, found: list[object]) -> None:
    found.append(await simulation.autoscaler.end("bob"))


def test_a_slice_of_a_user_that_breaks_is_deleted_and_has_failed():
    simulation = simulated(replace(ONE, max_slices=1))
    ask(simulation, simulation.autoscaler.create_slice("one", "ann"))
    simulation.run(15)
    simulation.cloud.machines["one-0"].hosts_lost = (0,)
    simulation.run(60)
    assert states(simulation) == {"one-0": "failed"}
    assert simulation.autoscaler.slices["one-0"].reason == "host 0 of 1 lost"
    assert not simulation.cloud.present()
    assert ask(simulation, simulation.autoscaler.create_slice("one", "ann")) == "one-1", "it counts no more"


def test_a_delete_that_fails_is_tried_again_and_the_closing_provider_is_told():
    simulation = simulated(ONE)
    simulation.want(1)
    simulation.run(15)
    simulation.cloud.weather.refuses = 1
    simulation.want(0)
    simulation.run(200)
    record = simulation.autoscaler.slices["one-0"]
    assert (record.state, record.words) == (SliceState.LEAVING, "so says the cloud")
    assert record.outcome in (Outcome.STOCK_OUT, Outcome.QUOTA, Outcome.RATE)
    simulation.cloud.weather.refuses = 0
    simulation.run(400)
    assert states(simulation) == {"one-0": "gone"}
    ask(simulation, simulation.autoscaler.close())
    assert simulation.cloud.calls[-1] == ("close", "")


def test_rows_that_are_over_are_forgotten_after_an_hour_but_the_newest_of_a_group():
    simulation = simulated(ONE)
    for hosts in (2, 0):
        simulation.want(hosts)
        simulation.run(400)
    assert states(simulation) == {"one-0": "gone", "one-1": "gone"}
    simulation.run(3800)
    assert states(simulation) == {"one-1": "gone"}
    assert list(simulation.rows.slices) == ["one-1"]
    simulation.want(1)
    simulation.run(10)
    assert "one-2" in states(simulation), "a number is never used again"
