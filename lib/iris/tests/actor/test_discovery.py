"""Actors found through a real controller: by name, after a restart elsewhere, by their own user only."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fray.testing.waiting import eventually
from iris.actor import ActorClient, ActorDied, ActorPool, ActorServer
from iris.actor.client.caller import Caller, ClientLimits
from iris.actor.client.keys import actor_key
from iris.client import IrisClient, IrisContext
from iris.client.job_env import JobEnv
from iris.rpc.auth import PrincipalKind
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.protocol import call_metadata
from rigging.errors import Denied, InvalidRequest, NotFound, Unavailable
from support.iris.controller import ControllerStubs, RunningController, running_controller
from support.iris.worker import ScriptedWorker

WAIT_S = 30.0


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[RunningController]:
    with running_controller(tmp_path / "state") as running:
        yield running


@pytest.fixture
def worker(controller: RunningController) -> Iterator[ScriptedWorker]:
    with ScriptedWorker(controller.address, controller.worker_token("w1")) as scripted:
        yield scripted


class Cluster:
    """Starts jobs whose tasks are this test, and clients as they would make them."""

    def __init__(self, controller: RunningController, worker: ScriptedWorker) -> None:
        self.controller = controller
        self.worker = worker
        self.stubs = ControllerStubs(controller.address, call_metadata(controller.admin_token))
        self.clients: list[IrisClient] = []

    def start(self, job_id: str, **fields: Any) -> None:
        spec = pb.JobSpec(
            job_id=job_id,
            entrypoint=pb.Entrypoint(command=pb.Command(argv=["true"])),
            resources=pb.Resources(cpu_millis=10),
            **{"replicas": 1, "max_retries_preemption": 10, **fields},
        )
        self.stubs.jobs.SubmitJob(pb.SubmitJobRequest(spec=spec))
        for index in range(spec.replicas):
            self.worker.wait_for_start(f"{job_id}/{index}:0")

    def context(self, attempt_id: str) -> IrisContext:
        job_id = attempt_id.rpartition("/")[0]
        job = JobEnv(str(self.controller.address), job_id, attempt_id.partition(":")[0], attempt_id, "w1", "")
        return IrisContext(job, self.client(PrincipalKind.JOB, job_id))

    def client(self, kind: PrincipalKind = PrincipalKind.USER, name: str = "ann") -> IrisClient:
        self.clients.append(IrisClient.remote(str(self.controller.address), token=self.controller.token(kind, name)))
        return self.clients[-1]

    def fail(self, attempt_id: str) -> None:
        self.worker.observe(attempt_id, pb.TASK_STATE_FAILED, exit_code=1, failure=pb.FAILURE_KIND_USER)

    def close(self) -> None:
        for client in self.clients:
            client.shutdown()
        self.stubs.close()


@pytest.fixture
def cluster(controller: RunningController, worker: ScriptedWorker) -> Iterator[Cluster]:
    made = Cluster(controller, worker)
    yield made
    made.close()


def test_an_actor_is_found_by_name_and_by_its_own_user_only(cluster: Cluster, bench: Any) -> None:
    cluster.start("/ann/a")
    cluster.start("/ann/other")
    cluster.start("/bob/b")
    with ActorServer(context=cluster.context("/ann/a/0:0")) as server:
        server.register("bench", bench, metadata={"colour": "red"})
        own = cluster.context("/ann/a/0:0").client
        (endpoint,) = own.resolver.resolve("/ann/a/bench")
        assert (endpoint.address, endpoint.metadata["colour"]) == (server.address, "red")
        for client in (own, cluster.client(), cluster.client(PrincipalKind.JOB, "/ann/other")):
            with ActorClient("/ann/a/bench", client=client) as actor:
                assert actor.echo("hello") == "hello"
        foreign = cluster.client(PrincipalKind.JOB, "/bob/b")
        with pytest.raises(Denied, match=r"job /bob/b may not .*: only user ann and admins may"):
            ActorClient("/ann/a/bench", client=foreign).echo(1)
        inside = IrisClient(foreign.connection, inside=cluster.context("/bob/b/0:0").job)
        with pytest.raises(NotFound, match="no endpoint 'bench' in this job"):
            ActorClient("bench", client=inside)
    assert own.resolver.resolve("/ann/a/bench") == []


def test_a_foreign_user_who_knows_the_address_gets_nothing(cluster: Cluster, bench: Any) -> None:
    cluster.start("/ann/a")
    cluster.start("/bob/b")
    bobs = actor_key(cluster.client(PrincipalKind.JOB, "/bob/b"))
    with ActorServer(context=cluster.context("/ann/a/0:0")) as server:
        server.register("bench", bench)
        with pytest.raises(Denied, match="not one of this user's jobs"):
            ActorClient.at(server.address, "bench", key=bobs).note("stolen")
    # Nor does one who pretends to be ann's actor get anything of ann's.
    with ActorServer(key=bobs) as liar:
        liar.register("bench", bench)
        cluster.context("/ann/a/0:0").registry.register("bench", liar.address)
        with pytest.raises(Denied, match="nothing was sent to it"):
            ActorClient("/ann/a/bench", client=cluster.client()).note("secret")
    assert bench.seen == []


def test_calls_wait_for_the_next_life(cluster: Cluster, bench: Any) -> None:
    cluster.start("/ann/a", max_retries_failure=1)
    with ActorClient("/ann/a/bench", client=cluster.client()) as actor:
        with ActorServer(context=cluster.context("/ann/a/0:0")) as server:
            server.register("bench", bench)
            assert actor.note.remote("one").result(WAIT_S) == 1
        cluster.fail("/ann/a/0:0")
        cluster.worker.wait_for_start("/ann/a/0:1")
        with ActorServer(context=cluster.context("/ann/a/0:1")) as server:
            server.register("bench", bench)
            assert actor.note.remote("two").result(WAIT_S) == 2
        cluster.fail("/ann/a/0:1")
        with pytest.raises(ActorDied, match="'note' of actor /ann/a/bench: the actor has ended: job /ann/a failed"):
            actor.note("three")


def test_a_pool_follows_its_members_and_keeps_nothing_of_those_that_left(cluster: Cluster) -> None:
    cluster.start("/ann/p", replicas=2)
    servers = []
    with ActorPool("/ann/p/member", client=cluster.client(), limits=ClientLimits(idle_s=0.05)) as pool:
        for index in range(2):
            servers.append(ActorServer(context=cluster.context(f"/ann/p/{index}:0")))
            servers[-1].start()
            servers[-1].register("member", [index])
            pool.wait_for_size(index + 1, WAIT_S)
        assert sorted(pool.call("copy").result(WAIT_S) for _ in range(4)) == [[0], [0], [1], [1]]
        assert [call.result(WAIT_S) for call in pool.broadcast("copy")] == [[0], [1]]
        for index in range(2):
            cluster.context(f"/ann/p/{index}:0").registry.unregister("member")
        eventually(lambda: pool.size == 0, "all have left")

        def kept() -> int:
            gc.collect()
            return sum(type(thing) is Caller and "/ann/p/member" in thing.label for thing in gc.get_objects())

        eventually(lambda: not kept(), "nothing is kept for them", instead=kept)
        eventually(lambda: not any(server.load.sessions for server in servers), "and their servers forget the pool")
        for server in servers:
            server.stop()
        cluster.fail("/ann/p/0:0")
        cluster.worker.observe("/ann/p/1:0", pb.TASK_STATE_KILLED)
        with pytest.raises(Unavailable, match=r"no actor '/ann/p/member' will answer: job /ann/p failed"):
            pool.wait_for_size(1, WAIT_S)


@pytest.mark.parametrize("made", [ActorClient, ActorPool])
def test_outside_of_a_job_one_says_which_cluster(made: type[Any]) -> None:
    with pytest.raises(
        InvalidRequest, match=rf"{made.__name__}\('/ann/a/x'\): outside of an Iris job, name the cluster"
    ):
        made("/ann/a/x")
