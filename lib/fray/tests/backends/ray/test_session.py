"""The session of a Ray client dies: the client goes on with another, and what was running is told truly."""

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fray import current_client
from fray.errors import ActorLost, JobAlreadyExists
from fray.testing import LONG, Flag, eventually
from fray.types import Entrypoint, JobRequest, JobStatus, ResourceConfig

if TYPE_CHECKING:
    from fray.backends.ray.client import RayClient

pytestmark = [pytest.mark.ray, pytest.mark.soak]

SMALL = ResourceConfig.with_cpu(cpu=0.1, ram="64m", disk="1m")


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def add(self) -> int:
        self.count += 1
        return self.count


def kill_session(client: "RayClient") -> None:
    import ray

    from fray.backends.ray.lookup import is_alive

    session = client.sessions.get()
    ray.kill(session, no_restart=True)
    eventually(lambda: not is_alive(session), "Ray has ended it")


def test_actors_can_be_made_again_and_those_of_the_dead_session_are_lost(client: "RayClient") -> None:
    old: Any = client.create_actor(Counter, name="counter")
    assert old.add() == 1
    kill_session(client)
    new: Any = client.create_actor(Counter, name="counter")
    assert new.add() == 1
    with pytest.raises(ActorLost):
        old.add()
    assert new.add() == 2, "a handle does not reach the actor that has the name now"


def test_hosted_actors_need_no_session_and_outlive_one(client: "RayClient") -> None:
    hosted: Any = client.host_actor(Counter, name="counter")
    assert client.known_session() is None, "which would cost a process"
    assert hosted.add() == 1
    with pytest.raises(JobAlreadyExists, match="counter"):
        client.create_actor(Counter, name="counter")

    def host_another() -> None:
        with pytest.raises(JobAlreadyExists, match="counter"):
            current_client().host_actor(Counter, name="counter")

    client.submit(JobRequest("hosts", Entrypoint.from_callable(host_another), SMALL)).wait(LONG)
    kill_session(client)
    assert hosted.add() == 2
    client.shutdown()
    with pytest.raises(ActorLost):
        hosted.add()


def test_jobs_go_on_and_their_output_is_reported_again(client: "RayClient", tmp_path: Path) -> None:
    end = Flag(str(tmp_path / "end"))

    def work() -> None:
        print("begun", flush=True)
        end.wait(LONG)
        print("done")

    job = client.submit(JobRequest("works", Entrypoint.from_callable(work), SMALL))
    eventually(lambda: job.logs() == "begun\n", "it is told while it runs")
    kill_session(client)
    assert job.status() is JobStatus.RUNNING
    eventually(lambda: job.logs() == "begun\n", "another session has been told")
    late = client.submit(JobRequest("late", Entrypoint.from_callable(end.wait, [LONG]), SMALL))
    eventually(lambda: late.status() is JobStatus.RUNNING, "the new session is told of new jobs")
    end.set()
    assert (job.wait(LONG), late.wait(LONG)) == (JobStatus.SUCCEEDED,) * 2
    assert job.logs() == job.logs() == "begun\ndone\n"


def test_actors_are_told_when_their_process_ends_without_shutdown(client: "RayClient", tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import sys\n"
        "from fray import current_actor, current_client\n"
        "from fray.testing import Flag\n"
        "class Mindful:\n"
        "    def __init__(self):\n"
        "        self.end = current_actor().shutdown_event\n"
        "    def until_told(self, begun, told):\n"
        "        begun.set()\n"
        "        self.end.wait(60) and told.set()\n"
        "client = current_client()\n"
        "actors = [client.create_actor(Mindful, name='made'), client.host_actor(Mindful, name='hosted')]\n"
        "for number, actor in enumerate(actors):\n"
        "    begun = Flag(f'{sys.argv[1]}/begun-{number}')\n"
        "    actor.until_told.remote(begun, Flag(f'{sys.argv[1]}/told-{number}'))\n"
        "    begun.wait(60)\n"
    )
    env = {**os.environ, "FRAY_CLIENT": "ray"}
    subprocess.run([sys.executable, "script.py", str(tmp_path)], cwd=tmp_path, env=env, timeout=LONG, check=True)
    for number in range(2):
        assert Flag(str(tmp_path / f"told-{number}")).wait()
