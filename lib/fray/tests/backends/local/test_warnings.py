"""Warnings of the local backend about variables that it does not apply."""

import logging
import os
from collections.abc import Callable
from typing import Any

import pytest

from fray.backends.local import LocalClient
from fray.testing import LONG
from fray.types import Entrypoint, EnvironmentConfig, JobRequest, create_environment
from rigging.filesystem import mirror_budget
from rigging.filesystem.budget import budget_environment


@pytest.fixture
def client() -> LocalClient:
    return LocalClient()


def request(fn: Callable[..., Any], environment: EnvironmentConfig) -> JobRequest:
    return JobRequest("job", Entrypoint.from_callable(fn), environment=environment)


def test_env_vars_of_a_callable_are_not_applied_but_said_so(
    client: LocalClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAME", "1")
    monkeypatch.delenv("OTHER", raising=False)
    environment = EnvironmentConfig(workspace=".", env_vars={"SAME": "1", "OTHER": "2"})
    seen: list[str | None] = []
    with caplog.at_level(logging.WARNING):
        client.submit(request(lambda: seen.append(os.environ.get("OTHER")), environment=environment)).wait(LONG)
    assert seen == [None]
    assert "not applied to callables" in caplog.text
    assert "OTHER" in caplog.text
    assert "SAME" not in caplog.text


def test_variables_that_nobody_asked_for_are_not_warned_of(
    client: LocalClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    with caplog.at_level(logging.WARNING), mirror_budget(3):
        client.submit(request(os.getpid, environment=create_environment(env_vars=budget_environment()))).wait(LONG)
        assert caplog.text == ""
        client.submit(
            request(os.getpid, environment=create_environment(env_vars={"TOKENIZERS_PARALLELISM": "true"}))
        ).wait(LONG)
    assert "not applied" in caplog.text
    assert "TOKENIZERS_PARALLELISM" in caplog.text
