import contextvars
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

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


def test_a_local_job_finds_the_set_client_or_else_its_own(client: LocalClient) -> None:
    def found() -> object:
        return client.submit(JobRequest("look", Entrypoint.from_callable(current_client))).result(10)

    assert found() is client
    assert current_client() is not client
    other = LocalClient()
    with set_current_client(other):
        assert found() is other
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(current_client).result() is not other, "of another thread"
            assert pool.submit(contextvars.copy_context().run, current_client).result() is other
