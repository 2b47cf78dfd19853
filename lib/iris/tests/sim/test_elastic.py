"""Workloads on slices that a policy creates: figures computed by hand, and a day beside the ancestor's rules."""

import math

import pytest

from iris.autoscale.rules import AutoscaleRules
from iris.domain.resources import Device, Resources
from iris.domain.scale_groups import ScaleGroup
from iris.domain.states import PriorityBand
from iris.sim.workload.cloud import Cloud, Weather
from iris.sim.workload.elastic import simulate_elastic
from iris.sim.workload.model import Arrival
from iris.sim.workload.policies import AncestorPolicy, FixedMinute, PlanPolicy

V5E_16 = Device("tpu", "v5litepod-16", 4)
GROUP = ScaleGroup("a", Resources(100_000, device=V5E_16), 4, max_slices=3, zone="a", preemptible=True)
NEXT = ScaleGroup("b", Resources(100_000, device=V5E_16), 4, max_slices=3, zone="b", preemptible=True)
BOOT = (100.0, 100.0)


def gang(at_s, duration_s):
    need = Resources(1000, device=V5E_16)
    return Arrival(at_s, "ann", PriorityBand.INTERACTIVE, 4, need, duration_s, "tpu-name")


def run(policy, weather, *arrivals, until_s=3600.0):
    groups = [group for group, _ in weather]
    made = AncestorPolicy(groups) if policy is AncestorPolicy else policy(groups, AutoscaleRules())
    return simulate_elastic(arrivals, Cloud(weather, 0), made, until_s)


@pytest.mark.parametrize(
    ("policy", "begun_s"),
    [
        (PlanPolicy, 15),  # at once
        (AncestorPolicy, 20),  # at the next look
        (FixedMinute, 60),
    ],
)
def test_a_gang_waits_for_the_look_and_the_boot_and_its_slice_goes_when_it_was_idle(policy, begun_s):
    found = run(policy, [(GROUP, Weather(boot_s=BOOT))], gang(15, 60))
    assert found.waiting_task_s == 4 * (begun_s - 15 + 100)
    assert (found.created, found.refused, found.lost, found.released) == (1, 0, 0, 1)
    assert found.busy_host_s == 4 * 60
    assert found.host_s == pytest.approx(4 * (100 + 60 + 300), abs=4 * policy.look_s)


def test_a_stock_out_is_known_after_its_time_and_the_next_zone_serves():
    dry = Weather(dry=((0, 7200),), boot_s=BOOT, refusal_s=20)
    found = run(PlanPolicy, [(GROUP, dry), (NEXT, Weather(boot_s=BOOT))], gang(0, 60))
    assert (found.created, found.refused, found.waiting_task_s) == (2, 1, 4 * 120)
    assert found.host_s == pytest.approx(4 * 460, abs=40), "a refused slice costs nothing"


def test_a_lost_slice_takes_its_gang_along_which_begins_anew():
    lossy = Weather(dry=((0, 1),), dry_loss_per_hour=0, loss_per_hour=60, boot_s=BOOT)
    found = run(PlanPolicy, [(GROUP, lossy)], gang(10, 600), until_s=1800)
    assert found.lost >= 2
    assert found.workload.ended_tasks == 0
    assert found.waiting_task_s >= 4 * 100 * found.lost


def test_the_time_of_a_loss_follows_the_weather():
    calm = Cloud([(GROUP, Weather(boot_s=BOOT))], 0)
    assert calm.request(GROUP, 0).lost_s == math.inf
    stormy = Cloud([(GROUP, Weather(dry=((1000, 2000),), dry_loss_per_hour=3600, boot_s=BOOT))], 0)
    assert 1000 < stormy.request(GROUP, 0).lost_s < 1100
