"""From the scale groups of a cluster file to the slices that run here."""

from hypothesis import given
from hypothesis import strategies as st

from iris.domain.resources import Device, Resources
from iris.domain.scale_groups import ScaleGroup
from iris.local.fleet.slices import Slice, plan_fleet

CPU = Resources(8000, 32 << 30, 100 << 30)
V4 = Resources(240_000, 400 << 30, 100 << 30, Device("tpu", "v4-16", 4))
H100 = Resources(96_000, 900 << 30, 100 << 30, Device("gpu", "H100", 8))


def test_the_hosts_of_a_slice_share_its_name_and_are_numbered_and_gpu_hosts_are_one_pool():
    group = ScaleGroup(
        "v4", V4, hosts_per_slice=2, region="us-central2", zone="us-central2-b", attributes=(("reservation", "shared"),)
    )
    first, second = Slice(group, "v4-3").hosts
    assert (first.name, first.worker_id) == ("v4-3-w0", "v4-3-w0@local")
    assert first.capacity == V4, "jobs that were written for the file's hosts fit"
    assert dict(second.attributes) == {
        "region": "us-central2", "zone": "us-central2-b", "preemptible": "false", "device-type": "tpu",
        "device-variant": "v4-16", "tpu-name": "v4-3", "tpu-worker-id": "1", "reservation": "shared",
        "scale-group": "v4", "slice": "v4-3",
    }  # fmt: skip
    [gpu] = Slice(ScaleGroup("h100", H100, preemptible=True), "h100-0").hosts
    assert (dict(gpu.attributes)["pool"], dict(gpu.attributes)["preemptible"]) == ("h100-0", "true")
    [cpu] = Slice(ScaleGroup("cpu", CPU), "cpu-0").hosts
    assert not {"pool", "tpu-name", "device-type"} & set(dict(cpu.attributes))


def test_what_is_not_there_from_the_start_is_told_with_the_reason():
    plan = plan_fleet(
        [
            ScaleGroup("a", CPU, min_slices=2, max_slices=3),
            ScaleGroup("b", V4, hosts_per_slice=2, min_slices=2, max_slices=4),
            ScaleGroup("c", V4, hosts_per_slice=2, max_slices=4),
            ScaleGroup("d", V4, hosts_per_slice=8),
            ScaleGroup("e", CPU, max_slices=0),
        ],
        max_hosts=5,
    )
    assert plan.first == {"a": 2, "b": 1}
    assert [group.name for group in plan.groups] == ["a", "b", "c"]
    assert dict(plan.left_out) == {
        "b": "1 of 2 slices: at most 5 hosts run here (--max-hosts)",
        "c": "none until a job asks for it; up to 4",
        "d": "a slice has 8 hosts; at most 5 run here (--max-hosts)",
        "e": "max_slices is 0",
    }


@st.composite
def scale_groups(draw: st.DrawFn) -> list[ScaleGroup]:
    made = []
    for number in range(draw(st.integers(0, 5))):
        least = draw(st.integers(0, 4))
        made.append(
            ScaleGroup(
                f"g{number}", draw(st.sampled_from([CPU, V4, H100])), hosts_per_slice=draw(st.integers(1, 6)),
                min_slices=least, max_slices=least + draw(st.integers(0, 3)),
            )
        )  # fmt: skip
    return made


@given(scale_groups(), st.integers(1, 12))
def test_a_plan_stays_within_its_bounds_and_accounts_for_every_group(groups, max_hosts):
    plan = plan_fleet(groups, max_hosts)
    sizes = {group.name: group.hosts_per_slice for group in groups}
    assert sum(count * sizes[name] for name, count in plan.first.items()) <= max_hosts
    told = dict(plan.left_out)
    for group in groups:
        count = plan.first.get(group.name, 0)
        assert count <= group.min_slices
        assert (count == group.min_slices and count > 0) or group.name in told, "nothing is missing without a word"
        assert (group in plan.groups) == (group.max_slices > 0 and group.hosts_per_slice <= max_hosts)
