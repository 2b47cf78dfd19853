"""A pool of workers as older programs use it."""

import os
import signal
from concurrent.futures import Future

import pytest

from iris.actor import ActorDied
from iris.client.worker_pool import WorkerPool, WorkerPoolConfig
from iris.cluster.types import ResourceSpec


@pytest.mark.process
@pytest.mark.compatible("WorkerPool(client, WorkerPoolConfig(num_workers, resources, ...))", since="0.1.0")
@pytest.mark.compatible("WorkerPool.submit(fn, *args) -> Future, .map(fn, items)", since="0.1.0")
def test_functions_run_on_workers(iris_client):
    def square(number):
        return number * number

    def fail():
        raise ValueError("of the function")

    plain = WorkerPoolConfig(1, ResourceSpec(cpu=1))
    assert (plain.environment, plain.name_prefix, plain.max_retries) == (None, "worker", 0)
    config = WorkerPoolConfig(num_workers=2, resources=ResourceSpec(cpu=0.1, memory="256MB"), name_prefix="squares")
    with WorkerPool(iris_client, config) as pool:
        future = pool.submit(square, 7)
        assert isinstance(future, Future)
        assert future.result(timeout=90) == 49
        assert pool.submit(int, "17", base=8).result(timeout=30) == 15
        assert list(pool.map(square, range(5))) == [0, 1, 4, 9, 16]
        assert pool.submit(os.getpid).result(timeout=30) != os.getpid()
        with pytest.raises(ValueError, match="of the function"):
            pool.submit(fail).result(timeout=30)
    with pytest.raises(RuntimeError, match="not open"):
        pool.submit(square, 1)


@pytest.mark.process
@pytest.mark.compatible("WorkerPool: a function whose worker died fails, and the other workers continue", since="0.1.0")
def test_a_worker_that_dies_takes_no_other_with_it(iris_client):
    def square(number):
        return number * number

    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    config = WorkerPoolConfig(num_workers=2, resources=ResourceSpec(cpu=0.1, memory="256MB"), name_prefix="squares")
    with WorkerPool(iris_client, config) as pool:
        lost = pool.submit(die)
        with pytest.raises(ActorDied, match="SIGKILL"):
            lost.result(timeout=60)
        assert list(pool.map(square, range(20))) == [number * number for number in range(20)]
        with pytest.raises(ActorDied, match="SIGKILL"):
            pool.submit(die).result(timeout=60)
        # Nobody is left to run it, now or later.
        for _ in range(2):
            with pytest.raises(ActorDied):
                pool.submit(square, 1).result(timeout=60)


@pytest.mark.process
@pytest.mark.compatible("WorkerPoolConfig(max_retries=n): functions and workers are started again", since="0.1.0")
def test_a_function_is_run_again(iris_client, tmp_path):
    def die_twice():
        for number in (1, 2):
            try:
                (tmp_path / f"died-{number}").touch(exist_ok=False)
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)
        return "alive"

    resources = ResourceSpec(cpu=0.1, memory="256MB")
    with WorkerPool(iris_client, WorkerPoolConfig(num_workers=1, resources=resources, max_retries=2)) as pool:
        assert pool.submit(die_twice).result(timeout=60) == "alive"
