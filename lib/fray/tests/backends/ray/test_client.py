"""Behaviour on Ray alone: being inside a Ray job, the client server, Ray functions, names inside of jobs."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fray.client import RunsRayFunctions
from fray.errors import JobFailed
from fray.testing import LONG, Flag, eventually
from fray.testing.contract.lifecycle import HOLD_LOCK, is_held
from fray.testing.ray_harness import RayCluster, RayHarness
from fray.types import Entrypoint, EnvironmentConfig, JobRequest, ResourceConfig
from rigging.errors import InvalidRequest

FRAY_BACKENDS = ["ray"]
pytestmark = [pytest.mark.ray, pytest.mark.process]

SMALL = ResourceConfig.with_cpu(cpu=0.1, ram="64m", disk="1m")


@pytest.fixture
def cluster(fray_harness: RayHarness) -> RayCluster:
    """The contract's, which has a Ray client server."""
    return fray_harness.cluster


def test_code_in_a_ray_task_that_fray_did_not_start_finds_ray(cluster: RayCluster, tmp_path: Path) -> None:
    import ray

    from fray.backends.ray.client import RayClient

    flag = Flag(str(tmp_path / "ran"))

    def inside() -> str:
        from fray import current_client

        client = current_client()
        status = client.submit(JobRequest("child", Entrypoint.from_callable(flag.set), SMALL)).wait(60)
        client.shutdown()
        return f"{type(client).__name__} {status}"

    with RayClient.connect():
        assert ray.get(ray.remote(num_cpus=0.1)(inside).remote()) == "RayClient succeeded"
    assert flag.is_set()


def test_a_function_that_is_rays_already(cluster: RayCluster, capsys: pytest.CaptureFixture[str]) -> None:
    import ray

    from fray.backends.ray.client import RayClient

    class Odd(Exception):
        def __reduce__(self) -> str:
            raise TypeError("it stays here")

    @ray.remote(num_cpus=0.1)
    def double(n: int) -> int:
        print(f"doubling {n}")
        if n == 0:
            raise Odd("zero")
        if n < -1:
            os._exit(3)
        if n < 0:
            raise LookupError("no such shard")
        return 2 * n

    of_double: Any = getattr(double.remote, "__wrapped__")  # noqa: B009 - Ray's types do not tell of it
    once: Any = ray.remote(num_cpus=0.1, max_retries=0)(of_double)
    once.remote.__name__ = "once"

    @ray.remote(num_cpus=0.1)
    def outer() -> None:
        ray.get(double.remote(-1))

    @ray.remote(num_cpus=0.1)
    def count(n: int) -> Iterator[int]:
        for each in range(n):  # noqa: UP028 - Ray sends to generators, which a range does not take
            yield each
        if n > 2:
            raise LookupError("no such shard")

    def twice(n: int) -> list[int]:
        if n < 0:
            raise LookupError("no such shard")
        return [n, n]

    with RayClient.connect() as client:
        assert isinstance(client, RunsRayFunctions)
        assert client.run_remote_function(double, [21]) == 42
        assert client.run_remote_function(count, [2]) == [0, 1], "a generator is waited for"
        pair: Any = ray.remote(num_cpus=0.1, num_returns=2)(twice)
        assert client.run_remote_function(pair, [7]) == [7, 7]
        nothing: Any = ray.remote(num_cpus=0.1, num_returns=0)(twice)
        for late, n in ((count, 3), (pair, -1), (nothing, -1)):
            with pytest.raises(LookupError, match="no such shard"):
                client.run_remote_function(late, [n])
        for fn, args in ((double, [-1]), (outer, []), (double.options(num_cpus=0.2), [-1])):
            with pytest.raises(LookupError, match="no such shard") as caught:
                client.run_remote_function(fn, args)
            trace = str(caught.value.__cause__)
            assert 'in double\n    raise LookupError("no such shard")\n' in trace
            assert "\x1b" not in trace
            assert "ray::" not in trace
        failing: tuple[tuple[Any, int, str], ...] = (
            (double, 0, "double failed: .*Odd: zero$"),
            (once, -2, "once failed: its process ended"),
        )
        for failing_fn, n, words in failing:
            with pytest.raises(JobFailed, match=words):
                client.run_remote_function(failing_fn, [n])
        with pytest.raises(InvalidRequest, match=r"function .double. fits on no node .*: odd: 1 requested"):
            client.run_remote_function(ray.remote(resources={"odd": 1})(of_double), [1])
    printed = capsys.readouterr().out
    assert printed.count("doubling 21\n") == 1
    assert printed.count("doubling -1\n") == 1, "what its tasks print is theirs, and so are options given later"
    assert "doubling 0\n" in printed


def test_a_worker_process_loads_a_client_for_those_jobs_alone_that_ask_for_one(
    cluster: RayCluster, tmp_path: Path
) -> None:
    from fray.backends.ray.client import RayClient

    def loaded() -> bool:
        return "fray.backends.ray.client" in sys.modules

    def ask() -> str:
        from fray import current_client

        return type(current_client()).__name__ if not loaded() else "there already"

    fresh = EnvironmentConfig(workspace=str(tmp_path), env_vars={"PROCESSES": "of their own", "FRAY_CLIENT": "local"})
    with RayClient.connect() as client:
        for fn, told in ((loaded, False), (ask, "RayClient"), (loaded, True)):
            job = client.submit(JobRequest(fn.__name__, Entrypoint.from_callable(fn), SMALL, fresh))
            job.wait(LONG)
            assert job.result() == told


def test_jobs_that_are_all_alike_but_for_what_they_captured(cluster: RayCluster) -> None:
    from fray.backends.ray.client import RayClient
    from fray.replica import replica_index

    note = ["first"]

    def work() -> None:
        print(f"{note[0]} {replica_index()}")

    with RayClient.connect() as client:
        for word in ("first", "second", "first"):
            note[0] = word
            # Often enough to become a Ray function of its own.
            jobs = [client.submit(JobRequest(f"{word}-{n}", Entrypoint.from_callable(work), SMALL)) for n in range(5)]
            for job in jobs:
                job.wait(LONG)
            assert [job.logs() for job in jobs] == [f"{word} 0\n"] * 5
        note[0] = "gang"
        for _ in range(4):
            gang = client.submit(JobRequest("gang", Entrypoint.from_callable(work), SMALL, replicas=3))
            gang.wait(LONG)
            assert sorted(gang.logs().splitlines()) == ["gang 0", "gang 1", "gang 2"]


def test_through_the_client_server(cluster: RayCluster, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "from fray import Entrypoint, JobRequest, ResourceConfig, current_client\n"
        "small = ResourceConfig.with_cpu(cpu=0.1, ram='64m', disk='1m')\n"
        "client = current_client()\n"
        "print('before')\n"
        "job = client.submit(JobRequest('far', Entrypoint.from_callable(print, ['hello from afar']), small))\n"
        "print(job.wait(60), job.logs())\n"
        "stopped = client.submit(JobRequest('endless', Entrypoint.from_binary('sleep', ['300']), small))\n"
        "stopped.terminate()\n"
        "print(stopped.wait(60, raise_on_failure=False))\n"
        "client.shutdown()\n"
    )
    env = {**os.environ, "FRAY_CLIENT": f"ray://{cluster.client_address}", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=LONG, check=False
    )
    assert "succeeded hello from afar\n\nstopped\n" in done.stdout, done.stderr[-3000:]


def test_what_a_program_has_started_ends_with_a_driver_that_is_killed(cluster: RayCluster, tmp_path: Path) -> None:
    script = f"""
from fray import Entrypoint, JobRequest, ResourceConfig
from fray.backends.ray import RayClient
client = RayClient.connect()
small = ResourceConfig.with_cpu(cpu=0.1, ram="64m", disk="1m")
program = Entrypoint.from_binary("sh", ["-c", {HOLD_LOCK!r}, "sh", {str(tmp_path / "p")!r}])
client.submit(JobRequest("p", program, small)).wait()
"""
    holds = Flag(str(tmp_path / "p"))
    with subprocess.Popen([sys.executable, "-c", script]) as driver:
        holds.wait()
        assert is_held(holds)
        driver.kill()
    eventually(lambda: not is_held(holds), "the program is gone with all it started", timeout=10)
