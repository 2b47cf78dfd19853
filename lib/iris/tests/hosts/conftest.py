"""Hosts in separate network namespaces: four with a worker and one with the controller, or named like in a page."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.iris.host_cluster import FAKETIME, Cluster, until
from support.iris.hosts import Host, network, why_not

LOST_AFTER_S = 6
"""A short timeout for lost workers, so that tests see its effects soon."""


@pytest.fixture(scope="module")
def make_hosts() -> Iterator[Callable[..., dict[str, Host]]]:
    if reason := why_not():
        pytest.skip(reason)
    with ExitStack() as stack:
        yield lambda *names: stack.enter_context(network(names))


@pytest.fixture
def page_environment(tmp_path: Path) -> dict[str, str]:
    """Return the environment for a page's commands: nothing of the user who runs the tests, and `iris` on the PATH."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("IRIS_", "XDG_"))}
    return {**kept, "HOME": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, make_hosts: Callable[..., dict[str, Host]]) -> Cluster:
    """h1 and h2 form a slice; h3 and h4 another, declared as a TPU slice. h4's clock is ten minutes ahead, if
    possible."""
    made = Cluster(tmp_path_factory.mktemp("hosts"), make_hosts("ctl", "h1", "h2", "h3", "h4"), LOST_AFTER_S)
    token = made.token(uses=4)
    for name, slice_name in (("h1", "a"), ("h2", "a"), ("h3", "b"), ("h4", "b")):
        clock = "+10m" if name == "h4" and FAKETIME else ""
        words = ["--join-token-file", str(token)]
        if slice_name == "b":
            words += ["--tpu", "v4-16", "--slice-index", "0" if name == "h4" else "1"]
        made.start_worker(name, slice_name, *words, clock=clock)
    until(lambda: made.connected() == {"h1", "h2", "h3", "h4"}, "four workers are connected")
    return made
