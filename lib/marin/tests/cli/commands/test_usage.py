"""`marin usage`: hours of a run's jobs, from a cluster that counts them."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from fray import LocalClient, set_current_client
from fray.client import JobHours
from support.marin.recorded_runs import Done, RecordedStorage, ended, started, step_ended


class Counting(LocalClient):
    """A client whose cluster knows one job."""

    def hours_of(self, job_ids: Sequence[str], since: float = 0.0) -> Mapping[str, Mapping[str, JobHours]]:
        self.since = since
        known = {"productive": JobHours(3.0, 24.0, 48.0), "lost": JobHours(1.0, 8.0, 16.0)}
        return {name: known for name in job_ids if name == "/ann/run/train-1"}


@pytest.fixture
def client() -> Iterator[Counting]:
    with set_current_client(Counting()) as client:
        yield client
        client.shutdown()


@pytest.fixture
def run(storage: RecordedStorage) -> str:
    steps = [storage.step(name) for name in ("train-000001", "eval-000002", "here-000003")]
    logs = ("job /ann/run/train-1", "job /ann/run/eval-2", None)
    events = [step_ended(step, log=log) for step, log in zip(steps, logs, strict=True)]
    return storage.run("x-0a1b2c", steps, [started(3), *events, ended()])


@pytest.mark.parametrize(("name", "since"), [("x-0a1b2c", 1_699_923_600.0), ("train", 0.0)])
def test_hours_of_a_run_since_its_start_and_of_a_step_in_all_runs(
    client: Counting, run: str, marin: Callable[..., Done], name: str, since: float
) -> None:
    done = marin("usage", name)
    assert [" ".join(line.split()) for line in done.out.splitlines()] == [
        "STEP HOURS OF TOTAL PRODUCTIVE LOST COST",
        "train cores 4.00 3.00 1.00 64.00",
        "chips 32.00 24.00 8.00",
    ]
    assert client.since == since
    assert {item["job"] for item in marin("usage", name, "--json").json} == {"/ann/run/train-1"}


def test_what_no_cluster_counts_is_refused_with_what_helps(
    client: Counting, run: str, marin: Callable[..., Done]
) -> None:
    assert "the cluster has no hours of /ann/run/eval-2" in marin("usage", "eval").err
    assert "no step ran as a job of a cluster; `marin show here`" in marin("usage", "here").err
    with set_current_client(LocalClient()):
        done = marin("usage", run)
    assert done.code != 0
    assert "LocalClient does not count the hours of jobs; set FRAY_CLIENT=iris" in done.err
