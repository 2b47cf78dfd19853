"""Ended jobs, which only the database has."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from iris.core.state.changes import Changes
from iris.domain.entities import Job
from iris.domain.errors import StorageUnavailable
from iris.domain.ids import JobId
from iris.domain.states import JobState
from iris.store.history import History
from iris.store.log_shelf import LogShelf
from iris.store.store import Store
from support.iris.stored_jobs import FULL_SPEC, PLAIN_SPEC, make_job

DONE, RUNNING = JobState.SUCCEEDED, JobState.RUNNING
# By order of submission: name, state, when it ended.
JOBS = (
    ("/ann/a", DONE, 40), ("/ann/b", JobState.FAILED, 50), ("/ann/b/x", DONE, 45), ("/ann/b/x/y", DONE, 44),
    ("/ann/b-1", RUNNING, 0), ("/ann/c", DONE, 60), ("/bob/a", DONE, 90), ("/bob/b", RUNNING, 0),
)  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path)
    store.commit(Changes.of(map(job, range(len(JOBS)))))
    yield store
    store.close()


@pytest.fixture
def history(store: Store) -> History:
    return store.history


def job(number: int) -> Job:
    name, state, ended = JOBS[number]
    spec = FULL_SPEC if number == 0 else PLAIN_SPEC
    made = make_job(replace(spec, job_id=JobId(name), env_vars={}), number + 1)
    return replace(made, state=state, finished_at_ms=ended)


@pytest.mark.parametrize(
    ("prefix", "states", "limit", "names"),
    [
        ("", (), 3, ["/bob/b", "/bob/a", "/ann/c"]),
        ("/ann/b", (), 9, ["/ann/b/x/y", "/ann/b/x", "/ann/b"]),
        ("/ann", (DONE,), 2, ["/ann/c", "/ann/b/x/y"]),
        ("", (RUNNING,), 9, ["/bob/b", "/ann/b-1"]),
        ("/ann/b*", (DONE,), 9, ["/ann/b/x/y", "/ann/b/x"]),
        ("/ann/b*", (), 2, ["/ann/b-1", "/ann/b/x/y"]),
        ("/eve", (), 9, []),
        ("/a", (), 9, []),
    ],
)
def test_the_newest_jobs(
    history: History, prefix: str, states: tuple[JobState, ...], limit: int, names: list[str]
) -> None:
    found = history.newest(prefix, states, limit)
    assert [item.job_id for item in found] == names
    assert found == [job([name for name, _, _ in JOBS].index(item.job_id)) for item in found]


def test_descendants_are_counted_by_state(history: History) -> None:
    assert history.counts_below([JobId("/ann/b"), JobId("/ann/a")]) == {"/ann/b": {DONE: 2}}


@pytest.mark.parametrize(
    ("old", "young", "most", "gone"),
    [
        (0, 0, 9, []),
        (41, 0, 9, ["/ann/a"]),
        (51, 0, 9, ["/ann/a", "/ann/b/x/y", "/ann/b/x", "/ann/b"]),
        (0, 99, 2, ["/ann/a", "/ann/b/x/y", "/ann/b/x"]),
        (0, 41, 2, ["/ann/a"]),
    ],
    ids=["none", "old", "after its descendants", "too many", "too many but too young"],
)
def test_jobs_that_are_old_or_too_many_of_a_user_are_forgotten(
    history: History, old: int, young: int, most: int, gone: list[str]
) -> None:
    assert history.forgettable(old, young, most) == gone


def test_jobs_are_found_by_name_by_key_and_by_number(store: Store, history: History, tmp_path: Path) -> None:
    shelf = LogShelf(tmp_path / "small.db")
    assert history.unknown_in(shelf.path) == []
    shelf.put({JobId(name): {"~0.0.log": b""} for name in ("/ann/a", "/ann/none")})
    assert history.unknown_in(shelf.path) == ["/ann/none"]
    assert history.unknown(["/ann/a", "/ann/none", "/ann/b/x"]) == ["/ann/none"]
    assert [item.job_id for item in history.numbered([3, 99])] == ["/ann/b/x"]
    keyed = replace(job(0), idempotency_key="k")
    store.commit(Changes.of([keyed]))
    assert (store.job_of(JobId("/ann/a")), store.job_of(JobId("/ann/none"))) == (keyed, None)
    assert history.digests() == ({"cd" * 32}, {"ab" * 32})


def test_a_database_that_cannot_be_read_is_told_as_what_may_pass(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match="ended jobs cannot be read"):
        History(tmp_path / "none.db").newest("", (), 1)
