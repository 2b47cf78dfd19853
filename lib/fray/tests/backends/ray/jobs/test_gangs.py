"""TPU slices on Ray: custom resources stand in for the chips, nodes on loopback for the hosts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fray.client import wait_all
from fray.testing import LONG, Flag, eventually
from fray.testing.ray_harness import RayCluster
from fray.types import Entrypoint, JobRequest, JobStatus, ResourceConfig

# Starting five nodes one after the other takes a busy machine more than a minute.
pytestmark = [pytest.mark.ray, pytest.mark.soak, pytest.mark.timeout(400)]

SLICE = ResourceConfig.with_tpu("v4-16", cpu=1, ram="64m", disk="1m")


def host(slice_name: str, first: bool) -> dict[str, float]:
    """Resources that Ray finds on a host of a v4-16."""
    return {"TPU": 4, slice_name: 1, **({"TPU-v4-16-head": 1} if first else {})}


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    """A head node and two slices of two hosts; node `a1` is to be lost."""
    nodes = {f"{name}{index}": host(f"slice-{name}", index == 0) for name in ("a", "b") for index in range(2)}
    with RayCluster(cpus=4).running(nodes) as cluster:
        yield cluster


def attend(place: Path, attempt_flags: list[Flag], end: Flag) -> None:
    """Say which slice one is on, and wait for the end."""
    import ray

    from fray.replica import replica_index

    attempt = 0 if not attempt_flags[0].is_set() else 1
    node = ray.get_runtime_context().get_node_id()
    own = next(n for n in ray.nodes() if n["NodeID"] == node)
    (slice_name,) = [name for name in own["Resources"] if name.startswith("slice-")]
    (place / f"{attempt}.{replica_index()}").write_text(f"{slice_name} {node}")
    end.wait(LONG)


def replicas(place: Path, attempt: int) -> list[list[str]]:
    return [path.read_text().split() for path in sorted(place.glob(f"{attempt}.*"))]


def test_a_gang_is_on_one_slice_and_starts_over_whole_when_a_node_is_lost(
    cluster: RayCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from fray.backends.common.job_life import AttemptStatus
    from fray.backends.ray.client import RayClient
    from fray.backends.ray.jobs.job import RayJob

    place = tmp_path / "replicas"
    place.mkdir()
    lost, end = Flag(str(tmp_path / "lost")), Flag(str(tmp_path / "end"))
    with RayClient.connect() as client:
        request = JobRequest("gang", Entrypoint.from_callable(attend, [place, [lost], end]), SLICE)
        job = client.submit(request)
        assert isinstance(job, RayJob)
        eventually(lambda: len(replicas(place, 0)) == 2, "both hosts run")
        (first, node), (same, other) = replicas(place, 0)
        assert first == same
        assert node != other
        # A second gang has the other slice, and a third waits.
        second = client.submit(JobRequest("second", Entrypoint.from_binary("sleep", ["300"]), SLICE))
        eventually(lambda: second.status() is JobStatus.RUNNING, "the second gang runs on the other slice")
        third = client.submit(JobRequest("third", Entrypoint.from_binary("true"), SLICE))
        assert third.status() is JobStatus.PENDING
        third.terminate()
        second.terminate()
        wait_all([second, third], LONG, raise_on_failure=False)

        lost.set()
        cluster.kill_node(f"{first[-1]}1")
        eventually(lambda: len(replicas(place, 1)) == 2, "both hosts run again, on the slice that is whole")
        assert {name for name, _ in replicas(place, 1)} == {"slice-b" if first == "slice-a" else "slice-a"}
        end.set()
        assert job.wait(LONG) is JobStatus.SUCCEEDED
        assert [attempt.status for attempt in job.attempts] == [AttemptStatus.PREEMPTED, AttemptStatus.SUCCEEDED]
        assert "was preempted" in caplog.text
        # What is left is no whole slice of the first: a gang of two slices cannot be, and says nothing but pending.
        both = client.submit(JobRequest("both", Entrypoint.from_binary("true"), ResourceConfig.with_tpu(
            "v4-16", slice_count=2, cpu=1, ram="64m", disk="1m")))  # fmt: skip
        assert both.status() is JobStatus.PENDING
        both.terminate()
        assert both.wait(LONG, raise_on_failure=False) is JobStatus.STOPPED
