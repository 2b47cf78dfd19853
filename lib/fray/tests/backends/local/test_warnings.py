import logging
import os
from collections.abc import Callable

import pytest

from fray.backends.local import LocalClient
from fray.testing import LONG
from fray.types import Entrypoint, EnvironmentConfig, JobRequest, create_environment
from rigging.filesystem import mirror_budget
from rigging.filesystem.budget import budget_environment


@pytest.mark.parametrize(
    ("make", "warned"),
    [
        (lambda: EnvironmentConfig(workspace=".", env_vars={"SAME": "1", "OTHER": "2"}), "OTHER"),
        (lambda: create_environment(env_vars={"TOKENIZERS_PARALLELISM": "true"}), "TOKENIZERS_PARALLELISM"),
        (lambda: create_environment(env_vars=budget_environment()), None),  # nobody asked for it
    ],
)
def test_variables_of_a_callable_are_not_applied_but_said_so_where_they_differ(
    make: Callable[[], EnvironmentConfig],
    warned: str | None,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SAME", "1")
    for name in ("OTHER", "TOKENIZERS_PARALLELISM"):
        monkeypatch.delenv(name, raising=False)
    entrypoint = Entrypoint.from_callable(lambda: os.environ.get("OTHER"))
    with caplog.at_level(logging.WARNING), mirror_budget(3), LocalClient() as client:
        assert client.submit(JobRequest("job", entrypoint, environment=make())).result(LONG) is None
    assert ("not applied to callables" in caplog.text) is (warned is not None)
    assert (warned or "") in caplog.text
    assert "SAME" not in caplog.text
