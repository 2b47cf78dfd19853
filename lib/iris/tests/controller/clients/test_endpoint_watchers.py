"""Which endpoints a query means, and when a watch of them says something."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from iris.controller.clients.endpoint_watchers import EndpointQuery, EndpointsUpdate, EndpointWatchers
from iris.core.state.view import ClusterView
from iris.domain.effects import EndpointChanged, JobChanged, JobEnded, JobForgotten
from iris.domain.endpoints import RegisteredEndpoint
from iris.domain.ids import AttemptId, JobId, TaskId
from iris.domain.states import JobState, TaskState
from rigging.errors import InvalidRequest, NotFound, Unavailable

A = JobId("/ann/a")


def endpoint(name: str, index: int = 0, address: str = "h:1") -> RegisteredEndpoint:
    return RegisteredEndpoint(name, AttemptId(f"/ann/a/{index}:0"), address)


class View:
    """Endpoints in a list, and one job."""

    def __init__(self) -> None:
        self.found: list[RegisteredEndpoint] = []
        self.endpoints = self
        self.jobs: dict[JobId, Any] = {A: SimpleNamespace(state=JobState.RUNNING, error="")}
        self.tasks: dict[TaskId, Any] = {}

    def task(self, task_id: TaskId) -> Any:
        if task_id not in self.tasks:
            raise NotFound(f"task {task_id} does not exist")
        return self.tasks[task_id]

    def named(self, name: str) -> list[RegisteredEndpoint]:
        return [item for item in self.found if item.name == name]

    def below(self, prefix: str) -> list[RegisteredEndpoint]:
        return [item for item in self.found if item.name.startswith(prefix)]


def test_a_leaf_is_looked_for_in_the_job_and_those_above_and_a_full_name_there_only() -> None:
    inner = EndpointQuery.named(JobId("/ann/a/b"), "db")
    assert inner.names == ("/ann/a/b/db", "/ann/a/db")
    assert inner.namespace == "/ann/a/b"
    full = EndpointQuery.named(JobId(""), "/ann/a/db")
    assert (full.names, full.namespace) == (("/ann/a/db",), "/ann/a")
    with pytest.raises(InvalidRequest, match=r"endpoint name 'db': outside of a job give the full name, /user/job/db"):
        EndpointQuery.named(JobId(""), "db")
    for name in ("/ann/a/db", "/ann/a/b/db"):
        assert inner.matches(name)
    assert not inner.matches("/ann/db")
    assert not inner.matches("/ann/a/b/db2")


def test_a_prefix_lies_in_a_job() -> None:
    query = EndpointQuery.below("/ann/a/")
    assert (query.prefix, query.namespace) == ("/ann/a/", "/ann/a")
    assert query.matches("/ann/a/x")
    assert not query.matches("/ann/ab/x")
    assert EndpointQuery.below("/ann/a/wor").matches("/ann/a/worker")
    for wrong in ("", "/", "/ann", "ann/a/x"):
        with pytest.raises(InvalidRequest):
            EndpointQuery.below(wrong)


def test_the_nearest_name_under_which_anything_answers_is_meant() -> None:
    view = View()
    query = EndpointQuery.named(JobId("/ann/a/b"), "db")
    assert query.find(cast(ClusterView, view)) == []
    view.found = [endpoint("/ann/a/db"), endpoint("/ann/a/db", 1)]
    assert query.find(cast(ClusterView, view)) == view.found
    own = endpoint("/ann/a/b/db")
    view.found.append(own)
    assert query.find(cast(ClusterView, view)) == [own]
    assert EndpointQuery.below("/ann/a/").find(cast(ClusterView, view)) == view.found


@pytest.fixture
def view() -> View:
    return View()


@pytest.fixture
def watchers(view: View) -> EndpointWatchers:
    return EndpointWatchers(cast(ClusterView, view))


async def settled() -> None:
    """Everything is committed."""


def changed(item: RegisteredEndpoint) -> EndpointChanged:
    return EndpointChanged(item.endpoint_id)


async def test_a_watch_begins_with_all_and_goes_on_with_what_changed(watchers: EndpointWatchers, view: View) -> None:
    one, two = endpoint("/ann/a/db"), endpoint("/ann/a/db", 1)
    view.found = [one]
    watch = watchers.watch(EndpointQuery.named(A, "db"), settled)
    assert await anext(watch) == EndpointsUpdate((one,), (), False, "")
    telling = asyncio.create_task(anext(watch))
    await asyncio.sleep(0)
    watchers.on_effects([changed(endpoint("/ann/a/other")), JobEnded(JobId("/ann/b"))])
    watchers.on_effects([changed(one)])
    await asyncio.sleep(0.01)
    assert not telling.done(), "nothing is different"
    view.found = [two]
    watchers.on_effects([changed(two)])
    assert await telling == EndpointsUpdate((two,), (one,), False, "")
    moved = endpoint("/ann/a/db", 1, "h:2")
    view.found = [moved]
    watchers.on_effects([changed(moved)])
    assert await anext(watch) == EndpointsUpdate((moved,), (), False, "")
    await watch.aclose()
    assert watchers._watches == {}, "a query that nobody asks any more costs nothing"
    watchers.on_effects([changed(moved)])


@pytest.mark.parametrize("effect", [JobEnded(A), JobChanged(A), JobForgotten(A)])
async def test_the_end_of_its_job_is_told_with_its_reason(watchers: EndpointWatchers, view: View, effect: Any) -> None:
    watch = watchers.watch(EndpointQuery.named(A, "db"), settled)
    assert await anext(watch) == EndpointsUpdate((), (), False, "")
    view.jobs[A] = SimpleNamespace(state=JobState.FAILED, error="exit code 3")
    watchers.on_effects([effect])
    assert await anext(watch) == EndpointsUpdate((), (), True, "job /ann/a failed: exit code 3")
    view.jobs[A] = SimpleNamespace(state=JobState.RUNNING, error="")
    watchers.on_effects([effect])
    assert await anext(watch) == EndpointsUpdate((), (), False, "")
    view.jobs[A] = SimpleNamespace(state=JobState.KILLED, error="")
    watchers.on_effects([effect])
    assert (await anext(watch)).ended_reason == "job /ann/a killed"
    await watch.aclose()


async def test_the_end_of_the_only_task_is_told_though_its_job_goes_on(watchers: EndpointWatchers, view: View) -> None:
    task = TaskId("/ann/a/1")
    view.tasks[task] = SimpleNamespace(state=TaskState.RUNNING, error="")
    one = endpoint("/ann/a/db", 1)
    view.found = [one]
    anybodys = watchers.watch(EndpointQuery.named(A, "db"), settled)
    watch = watchers.watch(EndpointQuery.named(A, "db", task), settled)
    assert await anext(watch) == await anext(anybodys) == EndpointsUpdate((one,), (), False, "")
    view.found = []
    watchers.on_effects([changed(one)])
    assert await anext(watch) == EndpointsUpdate((), (one,), False, ""), "it may be run again"
    view.tasks[task] = SimpleNamespace(state=TaskState.FAILED, error="exit code 3")
    watchers.on_effects([JobChanged(A)])
    assert await anext(watch) == EndpointsUpdate((), (), True, "task /ann/a/1 failed: exit code 3")
    assert await anext(anybodys) == EndpointsUpdate((), (one,), False, ""), "another task may take the name"
    for each in (watch, anybodys):
        await each.aclose()
    unknown = watchers.watch(EndpointQuery.named(A, "db", TaskId("/ann/a/7")), settled)
    assert await anext(unknown) == EndpointsUpdate((), (), True, "task /ann/a/7 does not exist")
    no_job = watchers.watch(EndpointQuery.below("/ann/x/"), settled)
    assert await anext(no_job) == EndpointsUpdate((), (), True, "job /ann/x does not exist")
    for each in (unknown, no_job):
        await each.aclose()
    with pytest.raises(InvalidRequest, match="nonsense"):
        EndpointQuery.named(A, "db", TaskId("nonsense"))


async def test_nothing_is_told_before_it_is_committed(watchers: EndpointWatchers, view: View) -> None:
    committed = asyncio.Event()

    async def wait() -> None:
        await committed.wait()

    watch = watchers.watch(EndpointQuery.named(A, "db"), wait)
    telling = asyncio.create_task(anext(watch))
    await asyncio.sleep(0.01)
    assert not telling.done()
    view.found = [endpoint("/ann/a/db")]
    committed.set()
    assert (await telling).added == tuple(view.found)
    await watch.aclose()


async def test_at_the_end_every_watch_ends_and_none_begins(watchers: EndpointWatchers, view: View) -> None:
    first, second = (watchers.watch(EndpointQuery.named(A, "db"), settled) for _ in range(2))
    await anext(first)
    watchers.close()
    for watch in (first, second):
        with pytest.raises(Unavailable, match="the controller is shutting down"):
            await anext(watch)
        await watch.aclose()
