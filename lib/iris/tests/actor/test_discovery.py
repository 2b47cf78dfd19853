"""Actors found through a real controller: by name, after a restart elsewhere, by their own user only."""

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from iris.actor import ActorClient, ActorDied, ActorPool, ActorServer
from iris.actor.client.caller import Caller, ClientLimits
from iris.client import IrisClient, IrisContext
from iris.client.job_env import JobEnv
from iris.rpc import iris_pb2 as pb
from iris.rpc.auth import PrincipalKind
from iris.rpc.protocol import call_metadata
from iris.testing.controller import ControllerStubs, RunningController, running_controller
from iris.testing.proxy import tcp_proxy
from iris.testing.worker import ScriptedWorker
from rigging.errors import Conflict, Denied, InvalidRequest, NotFound, Unavailable
from rigging.testing import eventually

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
        with pytest.raises(NotFound, match="no endpoint 'bench' in this job"):
            _inside(cluster, "/bob/b", lambda context: ActorClient("bench", client=context.client))
    assert own.resolver.resolve("/ann/a/bench") == []


def _inside(cluster: Cluster, job_id: str, work: Callable[[IrisContext], Any]) -> Any:
    context = cluster.context(f"{job_id}/0:0")
    client = context.client
    inside = IrisClient(client.connection, inside=context.job)
    return work(IrisContext(context.job, inside))


def test_a_foreign_user_who_knows_the_address_gets_nothing(cluster: Cluster, bench: Any) -> None:
    cluster.start("/ann/a")
    cluster.start("/bob/b")
    from iris.actor.client.keys import actor_key

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


SERVER = """
import os, sys, threading
from iris.actor import ActorServer
class Mortal:
    def pid(self): return os.getpid()
    def hang(self): threading.Event().wait(60)
with ActorServer() as server:
    server.register("mortal", Mortal())
    print(server.address, flush=True)
    sys.stdin.read()
"""


def live(cluster: Cluster, attempt_id: str, directory: Path) -> "subprocess.Popen[str]":
    """A process that is this attempt, as a worker would start it."""
    job_id = attempt_id.rpartition("/")[0]
    token = directory / "token"
    token.write_text(cluster.controller.token(PrincipalKind.JOB, job_id))
    variables = {
        "IRIS_JOB_ID": job_id,
        "IRIS_TASK_ID": attempt_id.partition(":")[0],
        "IRIS_ATTEMPT_ID": attempt_id,
        "IRIS_WORKER_ID": "w1",
        "IRIS_TOKEN_FILE": str(token),
        "IRIS_CONTROLLER_ADDRESS": str(cluster.controller.address),
    }
    return subprocess.Popen(
        [sys.executable, "-c", SERVER], env={**os.environ, **variables},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def kill(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


@pytest.mark.e2e
def test_killed_and_started_again_elsewhere(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start("/ann/a", max_retries_failure=1)
    first = live(cluster, "/ann/a/0:0", tmp_path)
    with ActorClient("/ann/a/mortal", client=cluster.client(), max_retries=0) as actor:
        # It waits for the actor to come up.
        assert actor.pid.remote().result(WAIT_S) == first.pid
        lost = actor.hang.remote()
        again = actor.call("hang", max_retries=1)
        kill(first)
        cluster.fail("/ann/a/0:0")
        with pytest.raises(ActorDied, match="'hang' of actor /ann/a/mortal"):
            lost.result(WAIT_S)
        waiting = actor.pid.remote()
        cluster.worker.wait_for_start("/ann/a/0:1")
        second = live(cluster, "/ann/a/0:1", tmp_path)
        assert not again.done()
        again.cancel()
        third_party = ActorClient("/ann/a/mortal", client=cluster.client())
        del third_party
        # `again` hangs in the second life too, so what comes behind it waits there.
        assert not waiting.done()
        kill(second)
        cluster.fail("/ann/a/0:1")
        with pytest.raises(ActorDied, match="the actor has ended: job /ann/a failed"):
            waiting.result(WAIT_S)
        with pytest.raises(ActorDied, match="the actor has ended"):
            actor.pid()


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


def test_an_actor_is_called_while_the_controller_is_away(cluster: Cluster, bench: Any) -> None:
    cluster.start("/ann/a")
    with ActorServer(context=cluster.context("/ann/a/0:0")) as server, tcp_proxy(server.address) as proxy:
        server.register("bench", bench)
        cluster.context("/ann/a/0:0").registry.register("bench", proxy.address)
        with ActorClient("/ann/a/bench", client=cluster.client()) as actor:
            assert actor.note("one") == 1
            cluster.controller.crash()
            assert actor.note("two") == 2
            proxy.cut()
            assert actor.note.remote("three").result(WAIT_S) == 3


def test_a_pool_takes_turns_and_follows_its_members(cluster: Cluster) -> None:
    cluster.start("/ann/p", replicas=3)

    class Member:
        def __init__(self, index: int) -> None:
            self.index = index

        def which(self) -> int:
            return self.index

    servers = []
    for index in range(2):
        servers.append(ActorServer(context=cluster.context(f"/ann/p/{index}:0")))
        servers[-1].start()
        servers[-1].register("member", Member(index))
    with ActorPool("/ann/p/member", client=cluster.client()) as pool:
        pool.wait_for_size(2, WAIT_S)
        assert sorted(pool.call("which").result(WAIT_S) for _ in range(6)) == [0, 0, 0, 1, 1, 1]
        assert [call.result(WAIT_S) for call in pool.broadcast("which")] == [0, 1]
        servers.append(ActorServer(context=cluster.context("/ann/p/2:0")))
        servers[-1].start()
        servers[-1].register("member", Member(2))
        pool.wait_for_size(3, WAIT_S)
        assert sorted(call.result(WAIT_S) for call in pool.broadcast("which")) == [0, 1, 2]
        for server in servers:
            server.stop()
        eventually(lambda: pool.size == 0, "all have left")
        with pytest.raises(Unavailable, match="no actor '/ann/p/member' answers now"):
            pool.call("which")
        cluster.fail("/ann/p/0:0")
        for index in (1, 2):
            cluster.worker.observe(f"/ann/p/{index}:0", pb.TASK_STATE_KILLED)
        with pytest.raises(Unavailable, match=r"no actor '/ann/p/member' will answer: job /ann/p failed"):
            pool.wait_for_size(1, WAIT_S)


def test_who_waits_for_actors_is_told_that_the_pool_was_closed(cluster: Cluster) -> None:
    cluster.start("/ann/quiet")
    pool = ActorPool("/ann/quiet/bench", client=cluster.client())
    told: list[BaseException] = []

    def wait() -> None:
        try:
            pool.wait_for_size(1, 10 * WAIT_S)
        except Conflict as error:
            told.append(error)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    eventually(lambda: pool._follower._changed._waiters, "it waits")  # type: ignore[attr-defined]
    pool.close()
    waiting.join(WAIT_S)
    assert "was closed" in str(told[0])


def test_outside_of_a_job_one_says_which_cluster() -> None:
    with pytest.raises(InvalidRequest, match="outside of an Iris job say which cluster"):
        ActorClient("/ann/a/x")
    with pytest.raises(InvalidRequest, match="outside of an Iris job say which cluster"):
        ActorPool("/ann/a/x")


def test_a_pool_keeps_nothing_of_members_that_left(cluster: Cluster, bench: Any) -> None:
    cluster.start("/ann/gone")
    with ActorServer(context=cluster.context("/ann/gone/0:0")) as server:
        pool = ActorPool("/ann/gone/bench", client=cluster.client(), limits=ClientLimits(idle_s=0.05))
        server.register("bench", bench)
        pool.wait_for_size(1, WAIT_S)
        assert pool.call("echo", (1,)).result(WAIT_S) == 1
        cluster.context("/ann/gone/0:0").registry.unregister("bench")
        eventually(lambda: pool.size == 0, "it has left")

        def kept() -> int:
            gc.collect()
            return sum(type(thing) is Caller and "/ann/gone/bench" in thing.label for thing in gc.get_objects())

        eventually(lambda: not kept(), "nothing is kept for it", instead=kept)
        eventually(lambda: not server.load.sessions, "and its server forgets the pool")
        pool.close()
    for use in (lambda: pool.call("echo"), lambda: pool.broadcast("echo"), lambda: pool.wait_for_size(1)):
        with pytest.raises(Conflict, match="the ActorPool of '/ann/gone/bench' was closed; make a new one"):
            use()
