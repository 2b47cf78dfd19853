import contextvars
import threading
from collections.abc import Iterator

import pytest

from fray import context
from fray.backends.local import LocalClient
from fray.context import current_client, default_spec, set_current_client
from fray.types import Entrypoint, JobRequest
from rigging.errors import InvalidRequest

IN_IRIS = {"IRIS_JOB_ID": "/ann/job", "IRIS_CONTROLLER_ADDRESS": "10.0.0.1:10000"}


@pytest.fixture(autouse=True)
def _outside_of_any_cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in (context.CLIENT_ENV, *IN_IRIS):
        monkeypatch.delenv(name, raising=False)
    yield
    current_client().shutdown()


@pytest.mark.parametrize(
    ("environ", "spec"),
    [
        ({}, "local"),
        ({"FRAY_CLIENT": ""}, "local"),
        ({"IRIS_JOB_ID": "/ann/job"}, "local"),
        (IN_IRIS, "iris"),
        ({"FRAY_CLIENT": "local", **IN_IRIS}, "local"),
        ({"FRAY_CLIENT": "iris://h:1"}, "iris://h:1"),
        ({"RAY_JOB_ID": "01000000"}, "ray"),
        ({"RAY_JOB_CONFIG_JSON_ENV_VAR": "{}"}, "ray"),
        ({"RAY_JOB_ID": "01000000", **IN_IRIS}, "iris"),
        ({"FRAY_CLIENT": "local", "RAY_JOB_ID": "01000000"}, "local"),
    ],
)
def test_what_the_environment_says(environ: dict[str, str], spec: str) -> None:
    assert default_spec(environ) == spec


def test_the_set_client_wins_and_is_undone(client: LocalClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(context.CLIENT_ENV, "nonsense")
    other = LocalClient()
    with set_current_client(client) as entered:
        assert entered is client
        with set_current_client(other):
            assert current_client() is other
        assert current_client() is client
    with pytest.raises(InvalidRequest, match="'nonsense' is not known"):
        current_client()
    monkeypatch.delenv(context.CLIENT_ENV)


def test_the_default_client_is_made_once_and_again_after_a_shutdown() -> None:
    first = current_client()
    assert isinstance(first, LocalClient)
    assert current_client() is first
    first.shutdown()
    assert current_client() is not first


def found_in_job(client: LocalClient) -> object:
    found: list[object] = []
    client.submit(JobRequest("look", Entrypoint.from_callable(lambda: found.append(current_client())))).wait(10)
    return found[0]


def test_jobs_of_the_local_backend_see_the_set_client(client: LocalClient) -> None:
    other = LocalClient()
    with set_current_client(other):
        assert found_in_job(client) is other


def test_a_local_job_finds_its_own_client_when_none_is_set(client: LocalClient) -> None:
    assert found_in_job(client) is client
    assert current_client() is not client


def test_two_threads_may_use_two_clients(client: LocalClient) -> None:
    found: list[object] = []
    with set_current_client(client):
        plain = threading.Thread(target=lambda: found.append(current_client()))
        inheriting = threading.Thread(
            target=contextvars.copy_context().run, args=(lambda: found.append(current_client()),)
        )
        for thread in (plain, inheriting):
            thread.start()
            thread.join()
    assert found[0] is not client
    assert found[1] is client
