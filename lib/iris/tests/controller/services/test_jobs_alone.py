"""What JobService tells is committed; the rest of it is tested through a running controller."""

import asyncio
import contextvars
from types import SimpleNamespace

import pytest

from iris.controller.access.interceptor import serve_for
from iris.controller.clients.waiters import JobWaiters
from iris.controller.engine.engine import Engine
from iris.controller.services.jobs import JobService
from iris.core.state.changes import Changes
from iris.core.state.view import ClusterView
from iris.domain.events import AttemptObserved, JobSubmitted, LendCpu, WorkerConnected
from iris.domain.ids import AttemptId, JobId, WorkerId
from iris.domain.job_spec import CommandEntrypoint, JobSpec
from iris.domain.resources import Resources
from iris.domain.states import TaskState
from iris.rpc import iris_pb2 as pb
from iris.rpc.auth import Principal, PrincipalKind
from iris.rpc.protocol import ATTEMPT_ID_KEY
from iris.testing.scheduling import InMemoryCluster, resources

WORKER = WorkerId("w1")


class Disk:
    def __init__(self) -> None:
        self.states: dict[str, int] = {}

    def commit(self, changes: Changes) -> None:
        self.states.update((job_id, int(job.state)) for job_id, job in changes.jobs.items())


@pytest.mark.parametrize(
    ("who", "attempt", "lends"),
    [
        (Principal(PrincipalKind.JOB, "/ann/a"), "/ann/a/0:0", True),
        (Principal(PrincipalKind.JOB, "/ann/a"), "/ann/a/0:1", False),
        (Principal(PrincipalKind.JOB, "/ann/a"), "/ann/a/7:0", False),
        (Principal(PrincipalKind.JOB, "/ann/a"), "/ann/none/0:0", False),
        (Principal(PrincipalKind.JOB, "/ann/a"), "no attempt", False),
        (Principal(PrincipalKind.JOB, "/ann/a"), "", False),
        (Principal(PrincipalKind.JOB, "/ann/other"), "/ann/a/0:0", False),
        (Principal(PrincipalKind.USER, "/ann/a"), "/ann/a/0:0", False),
    ],
)
@pytest.mark.parametrize("state", [TaskState.RUNNING, TaskState.SUCCEEDED])
def test_only_a_live_attempt_lends_its_own_cpu_and_only_while_it_waits(
    who: Principal, attempt: str, lends: bool, state: TaskState
) -> None:
    cluster, told = InMemoryCluster(), list[object]()
    cluster.connect("w", resources(8, 8))
    cluster.submit("/ann/a", replicas=2)
    cluster.schedule()
    cluster.observe("/ann/a/0:0", state)
    engine = SimpleNamespace(post=told.append)
    service = JobService(SimpleNamespace(engine=engine, view=cluster.view))

    def lend() -> list[object]:
        serve_for(who)
        with service._lending(SimpleNamespace(invocation_metadata=lambda: ((ATTEMPT_ID_KEY, attempt),))):
            return list(told)

    during = contextvars.copy_context().run(lend)
    mine = AttemptId("/ann/a/0:0")
    expected = [LendCpu(mine, True), LendCpu(mine, False)] if lends and state is TaskState.RUNNING else []
    assert (during, told) == (expected[:1], expected)


def test_a_wait_that_is_over_tells_only_what_is_committed() -> None:
    """Of several jobs one may have moved during the wait, in a batch that is still kept open for others."""

    async def test() -> None:
        serve_for(Principal(PrincipalKind.USER, "ann"))
        view, disk = ClusterView(), Disk()
        engine = Engine(view, disk, lambda: 1000, lambda _: None, share_commit_s=3600)
        waiters = JobWaiters(view)
        engine.listen(waiters.on_effects)
        engine.watch(waiters.completes)
        service = JobService(SimpleNamespace(engine=engine, view=view, waiters=waiters, pending_reason=lambda _: ""))
        await engine.submit(WorkerConnected(WORKER, "one", Resources(cpu_millis=8000)))
        names = ["/ann/a", "/ann/b"]
        for name in names:
            spec = JobSpec(JobId(name), CommandEntrypoint(("true",)), Resources(cpu_millis=1))
            await engine.submit(JobSubmitted(spec))
        request = pb.WaitJobsRequest(job_ids=names, timeout_ms=20)
        waiting = asyncio.create_task(service.WaitJobs(request, SimpleNamespace(invocation_metadata=lambda: ())))
        await asyncio.sleep(0)  # it waits now
        engine.post(AttemptObserved(AttemptId("/ann/a/0:0"), WORKER, TaskState.RUNNING, at_ms=1))
        reply = await waiting
        assert not reply.done
        assert [status.state for status in reply.jobs] == [pb.JOB_STATE_RUNNING, pb.JOB_STATE_BUILDING]
        assert disk.states == {status.job_id: status.state for status in reply.jobs}
        engine.close()

    asyncio.run(asyncio.wait_for(test(), 10))
