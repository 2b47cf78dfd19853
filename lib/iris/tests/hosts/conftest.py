"""Four hosts with a worker, and one with the controller."""

from collections.abc import Iterator

import pytest

from iris.testing.host_cluster import FAKETIME, Cluster, until
from iris.testing.hosts import network, why_not

WHY_NOT = why_not()
LOST_AFTER_S = 6
"""So short a silence that the fast tier has all that comes of it."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """h1 and h2 are a slice, h3 and h4 another, declared a TPU's; h4's clock is ten minutes ahead, if it can be."""
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    with network(["ctl", "h1", "h2", "h3", "h4"]) as hosts:
        made = Cluster(tmp_path_factory.mktemp("hosts"), hosts, LOST_AFTER_S)
        token = made.token(uses=4)
        for name, slice_name in (("h1", "a"), ("h2", "a"), ("h3", "b"), ("h4", "b")):
            clock = "+10m" if name == "h4" and FAKETIME else ""
            words = ["--join-token-file", str(token)]
            if slice_name == "b":
                words += ["--tpu", "v4-16", "--slice-index", "0" if name == "h4" else "1"]
            made.start_worker(name, slice_name, *words, clock=clock)
        until(lambda: made.connected() == {"h1", "h2", "h3", "h4"}, "four workers are connected")
        yield made
