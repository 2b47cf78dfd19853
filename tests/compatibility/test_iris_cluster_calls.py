"""Calls of older programs that are answered by a cluster."""

import sys

import pytest

from iris.actor import ActorClient, ProxyResolver
from iris.client import IrisClient
from iris.cluster.types import Entrypoint, JobName, JobState, ResourceSpec, TaskState
from rigging.timing import Duration

SMALL = ResourceSpec(cpu=0.1, memory="256MB")


class Counter:
    def __init__(self, start=0):
        self.value = start

    def add(self, number=1):
        self.value += number
        return self.value


@pytest.mark.process
@pytest.mark.compatible("IrisClient.list_jobs(state=, prefix=), on a cluster", since="0.1.0")
@pytest.mark.compatible("Task.state, Job.state_only(), fetch_task_logs(target=), on a cluster", since="0.1.0")
def test_jobs_are_listed_looked_at_and_ended(iris_client):
    sleep = Entrypoint.from_command("sleep", "300")
    names = ("sweep-1", "sweep-2", "other")
    jobs = [iris_client.submit(sleep, name, SMALL, timeout=Duration.from_minutes(5)) for name in names]
    prefix = f"/{jobs[0].job_id.user}/sweep-1"
    done = iris_client.submit(Entrypoint.from_command("echo", "hello"), "done", SMALL)
    done.wait(timeout=60)
    assert done.state_only() is JobState.SUCCEEDED
    assert done.tasks()[0].state is TaskState.SUCCEEDED
    assert [entry.data for entry in iris_client.fetch_task_logs(target=done.tasks()[0].task_id)] == ["hello"]
    assert [entry.data for entry in iris_client.fetch_task_logs(target=done.job_id)] == ["hello"]
    ended = {job.job_id for job in iris_client.list_jobs(state=JobState.SUCCEEDED)}
    assert done.job_id in ended
    assert done.job_id in {job.job_id for job in iris_client.list_jobs(state=4)}, "the numbers are public"
    assert not ended & {job.job_id for job in jobs}
    assert [job.job_id for job in iris_client.list_jobs(prefix=JobName.from_wire(prefix))] == [jobs[0].job_id]
    assert iris_client.terminate_prefix(prefix.removesuffix("-1")) == [jobs[1].job_id, jobs[0].job_id]
    for job in jobs[:2]:
        job.wait(timeout=60, raise_on_failure=False)
        assert iris_client.job_state(job.job_id) is JobState.KILLED
    assert not iris_client.job_state(jobs[2].job_id).is_terminal
    jobs[2].terminate()


@pytest.mark.process
@pytest.mark.compatible("ProxyResolver(controller_url), to an actor of a job", since="0.1.0")
def test_an_actor_of_a_job_is_called_from_outside(iris_client, users_cluster):
    def count_for_ever():
        import threading

        from iris.actor import ActorServer

        class Sum:
            def add(self, *numbers):
                return sum(numbers)

        server = ActorServer(host="127.0.0.1")
        server.register("counter", Sum())
        server.serve_background()
        threading.Event().wait()

    job = iris_client.submit(Entrypoint.from_callable(count_for_ever), "counting", SMALL)
    resolver = ProxyResolver(f"http://{users_cluster}")
    with ActorClient(resolver, f"{job.job_id}/counter", call_timeout=60.0) as counter:
        assert counter.add(2, 5) == 7
    resolver.client.shutdown()
    job.terminate()


@pytest.mark.process
@pytest.mark.compatible("FixedResolver({name: url or [urls]}), within a job", since="0.1.0")
def test_an_actor_is_called_by_its_address_within_a_job(iris_client):
    def serve_and_call():
        from iris.actor import ActorClient, ActorPool, ActorServer, FixedResolver

        class Sum:
            def add(self, *numbers):
                return sum(numbers)

        server = ActorServer(host="127.0.0.1")
        server.register("sum", Sum())
        resolver = FixedResolver({"sum": f"http://127.0.0.1:{server.serve_background()}"})
        with (
            ActorClient(resolver, "sum", call_timeout=60.0) as client,
            ActorPool(resolver, "sum", timeout=60.0) as pool,
        ):
            print(client.add(2, 5), pool.call().add(3), pool.broadcast().add(4).wait_all())
        server.stop()

    job = iris_client.submit(Entrypoint.from_callable(serve_and_call), "by-address", SMALL)
    job.wait(timeout=60)
    assert [entry.data for entry in iris_client.fetch_task_logs(target=job.job_id)] == ["7 3 [4]"]


@pytest.mark.process
@pytest.mark.compatible("FrayIrisClient(controller_address, workspace?): jobs and actors", since="0.1.0")
@pytest.mark.compatible("fray.iris_backend.IrisActorHandle, IrisActorGroup", since="0.1.0")
def test_the_old_client_of_iris_runs_jobs_and_actors(users_cluster, tmp_path, monkeypatch):
    from fray.cluster import Entrypoint as FrayEntrypoint
    from fray.cluster import JobRequest, JobStatus, ResourceConfig
    from fray.iris_backend import FrayIrisClient, IrisActorGroup, IrisActorHandle
    from fray.types import create_environment

    (tmp_path / "library.py").write_text("NAME = 'mine'\n")
    (tmp_path / "script.py").write_text("import library\nprint(library.NAME)\n")
    small = ResourceConfig.with_cpu(cpu=0.1, ram="256m", disk="64m")
    client = FrayIrisClient(f"http://{users_cluster}", workspace=tmp_path)
    for name, environment in (("plain", None), ("own", create_environment(env_vars={"A": "1"}))):
        program = FrayEntrypoint.from_binary(sys.executable, ["script.py"])
        job = client.submit(JobRequest(name, program, small, environment))
        assert job.wait(timeout=60) is JobStatus.SUCCEEDED
        assert job.logs() == "mine\n"
    group = client.create_actor_group(Counter, 3, name="counters", count=2, resources=small)
    assert isinstance(group, IrisActorGroup)
    handles = group.wait_ready(count=1, timeout=60)
    assert len(handles) == 1
    assert isinstance(handles[0], IrisActorHandle)
    assert handles[0].add(1) == 4
    group.shutdown()
    client.shutdown()
    monkeypatch.chdir(tmp_path)
    over = FrayIrisClient.from_iris_client(IrisClient.remote(users_cluster))
    assert over.create_actor(Counter, name="single", resources=small).add(1) == 1
    over.shutdown()
