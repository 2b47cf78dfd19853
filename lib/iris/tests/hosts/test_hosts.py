"""What a cluster of several hosts shows of them, where gangs run there, and that a revoked host is out."""

import re

import pytest

from support.iris.host_cluster import FAKETIME, Cluster, until

pytestmark = pytest.mark.process


@pytest.mark.quarantine("among all process tests h4's clock is not faked, alone it is; the cause is not known")
def test_each_host_is_shown_with_its_address_release_and_clock(cluster: Cluster) -> None:
    shown = {worker["worker_id"]: worker for worker in cluster.ask("cluster", "status")["workers"]}
    assert all(worker["address"] == cluster.hosts[name].address for name, worker in shown.items())
    assert len({worker["version"] for worker in shown.values()}) == 1
    measured = until(
        lambda: [
            worker
            for worker in cluster.ask("cluster", "status")["workers"]
            if worker["clock_skew_ms"] is not None and worker["clock_error_ms"] < 500
        ][3:],
        "clocks are compared",
    )
    assert measured
    for worker in cluster.ask("cluster", "status")["workers"]:
        wrong_by = 600_000 if worker["worker_id"] == "h4" and FAKETIME else 0
        assert abs(worker["clock_skew_ms"] - wrong_by) <= worker["clock_error_ms"] + 50
    text = cluster.iris("cluster", "status").stdout
    assert ("clock:      h4 is 10 min 0 s ahead of the controller" in text) is bool(FAKETIME)
    assert re.search(r"h1 +connected .* 10\.0\.0\.2 ", text)


def test_a_gang_gets_a_slice_of_declared_tpus_in_the_order_of_its_hosts(cluster: Cluster) -> None:
    show = "echo task $IRIS_TASK_INDEX on $IRIS_WORKER_ID, number $TPU_WORKER_ID of $TPU_WORKER_HOSTNAMES"
    resources = ("--cpu", "1", "--memory", "100MB", "--disk", "10MB")
    done = cluster.iris("job", "run", "--no-workspace", "--tpu", "v4-16", *resources, "--", "sh", "-c", show)
    assert done.returncode == 0, done.stderr
    hosts = ",".join(cluster.hosts[name].address for name in ("h4", "h3"))
    assert sorted(re.findall(r"task \d on .*", done.stdout)) == [
        f"task {index} on {name}, number {index} of {hosts}" for index, name in enumerate(("h4", "h3"))
    ]
    status = cluster.iris("cluster", "status").stdout
    assert "v4-16" in status


def test_a_revoked_host_is_out(cluster: Cluster) -> None:
    assert cluster.iris("worker", "revoke", "h3", "--reason", "sold").returncode == 0
    assert cluster.workers["h3"].wait(30) == 0
    cluster.start_worker("h3", "b")
    assert cluster.workers["h3"].wait(60) == 1
    assert "the credential of worker h3 was revoked by admin root" in (cluster.root / "h3.log").read_text()
    assert "h3" not in cluster.connected()
