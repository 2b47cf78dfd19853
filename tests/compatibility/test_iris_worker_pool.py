"""A pool of workers as older programs use it."""

import os
from concurrent.futures import Future

import pytest

from iris.client import IrisClient
from iris.client.connection.discovery import local_cluster
from iris.client.worker_pool import WorkerPool, WorkerPoolConfig
from iris.cluster.types import ResourceSpec
from iris.local.start import LocalCluster
from iris.local.state import LocalPaths
from iris.local.stop import kill_cluster


@pytest.fixture
def client(tmp_path):
    paths = LocalPaths(tmp_path / "state")
    with IrisClient.of(local_cluster(LocalCluster(paths)), inherit_workspace=False) as made:
        yield made
    kill_cluster(paths)


@pytest.mark.e2e
@pytest.mark.compatible("WorkerPool(client, WorkerPoolConfig(num_workers, resources, ...))", since="0.1.0")
@pytest.mark.compatible("WorkerPool.submit(fn, *args) -> Future, .map(fn, items)", since="0.1.0")
def test_functions_run_on_workers(client):
    def square(number):
        return number * number

    def fail():
        raise ValueError("of the function")

    config = WorkerPoolConfig(num_workers=2, resources=ResourceSpec(cpu=0.1, memory="256MB"), name_prefix="squares")
    with WorkerPool(client, config) as pool:
        future = pool.submit(square, 7)
        assert isinstance(future, Future)
        assert future.result(timeout=90) == 49
        assert list(pool.map(square, range(5))) == [0, 1, 4, 9, 16]
        assert pool.submit(os.getpid).result(timeout=30) != os.getpid()
        with pytest.raises(ValueError, match="of the function"):
            pool.submit(fail).result(timeout=30)
    with pytest.raises(RuntimeError, match="not open"):
        pool.submit(square, 1)
