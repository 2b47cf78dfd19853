import logging

import pytest

from marin.execution import compute_output_path, versioned
from marin.execution.version.paths import check_path_length
from rigging.errors import InvalidRequest


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


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (
            "/p/a/" + "é" * 128,
            "a part of its output path has 256 bytes, of at most 255 for a name on a disk; .*: é+$",
        ),
        ("/p" + 253 * "/sixteen-letters-", "has 4303 bytes, of at most 4031 .a path on a disk may have 4095"),
        ("s3://b/" + 961 * "k", "has 961 bytes, of at most 960 .a key in a bucket may have 1024"),
    ],
)
def test_a_path_that_its_storage_would_refuse_is_refused_in_clear_words(path: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^step 'n': .*{words}"):
        check_path_length("n", path)


@pytest.mark.parametrize("path", ["/p/" + 255 * "a", "gs://bucket/" + 960 * "k", "memory://" + 2000 * "k"])
def test_a_path_that_is_long_is_taken(path: str) -> None:
    check_path_length("n", path)


def test_an_override_that_changes_nothing_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    computed = compute_output_path("n", None, prefix="/p")
    with caplog.at_level(logging.WARNING):
        assert compute_output_path("n", None, override_output_path=computed, prefix="/p") == computed
    assert not caplog.records
