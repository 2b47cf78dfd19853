"""Output paths from versions, prefixes and overrides."""

import logging

import pytest

from marin.execution import compute_output_path, versioned


@pytest.mark.parametrize("prefix", ["/p", "/p/", "gs://bucket", "gs://bucket/deep"])
def test_a_path_lies_below_its_prefix(prefix: str) -> None:
    path = compute_output_path("a/b", versioned(1), prefix=prefix)
    assert path.startswith(f"{prefix.rstrip('/')}/a/b-")
    assert path.rpartition("-")[2] == compute_output_path("a/b", versioned(1), prefix="/other").rpartition("-")[2]


def test_the_prefix_is_read_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    for prefix in ("/one", "/two"):
        monkeypatch.setenv("MARIN_PREFIX", prefix)
        assert compute_output_path("n", None).startswith(f"{prefix}/n-")


@pytest.mark.parametrize(
    ("override", "expected"),
    [("rel/x", "/p/rel/x"), ("/abs/x", "/abs/x"), ("gs://bucket/x", "gs://bucket/x")],
)
def test_an_override_is_taken_with_a_warning(override: str, expected: str, caplog: pytest.LogCaptureFixture) -> None:
    assert compute_output_path("n", None, override_output_path=override, prefix="/p") == expected
    assert f"output path {expected} is fixed by override_output_path" in caplog.text


def test_an_override_that_changes_nothing_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    computed = compute_output_path("n", None, prefix="/p")
    with caplog.at_level(logging.WARNING):
        assert compute_output_path("n", None, override_output_path=computed, prefix="/p") == computed
    assert not caplog.records
