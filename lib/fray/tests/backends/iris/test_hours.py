"""The hours of jobs, from the cluster's ledger."""

from types import SimpleNamespace
from typing import Any, cast

from fray.backends.iris.client import IrisBackend
from fray.backends.local.client import LocalClient
from fray.client import JobHours, TellsHours
from iris.client import IrisClient


def test_hours_count_for_the_job_with_its_children() -> None:
    asked: list[str] = []

    def query(sql: str, max_rows: int) -> Any:
        asked.append(sql)
        return SimpleNamespace(
            rows=[
                ("/ann/a", "/ann/a", "productive", 1.0, 0.0, None),
                ("/ann/a", "/ann/a/child", "productive", 2.0, 4.0, 0.5),
                ("/ann/run", "/ann/run/b", "lost", 3.0, 0.0, None),
            ]
        )

    backend = IrisBackend(cast(IrisClient, SimpleNamespace(query=query)))
    assert isinstance(backend, TellsHours)
    assert backend.hours_of(["/ann/a", "/ann/run/b", "/ann/o'neil"], since=7200.0) == {
        "/ann/a": {"productive": JobHours(3.0, 4.0, 0.5)},
        "/ann/run/b": {"lost": JobHours(3.0, 0.0, None)},
    }
    assert "'/ann/o''neil') OR" in asked[0]
    assert "start_ms > 3600000 GROUP" in asked[0]
    assert not isinstance(LocalClient(), TellsHours)
