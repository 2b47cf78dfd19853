from pathlib import Path

import pytest

import rigging.filesystem
from rigging.errors import InvalidRequest
from rigging.filesystem import marin_prefix, marin_temp_bucket
from rigging.filesystem.prefix import absolute_prefix


@pytest.mark.parametrize(
    ("value", "expected"),
    [("gs://b/x", "gs://b/x"), ("gs://b/", "gs://b"), ("/", "/"), ("memory://", "memory://"), (" ", "/tmp/marin")],
)
def test_prefix_is_read_from_environment_each_time(value: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_PREFIX", value)
    assert marin_prefix() == expected


def test_prefix_on_a_gcp_machine_is_the_regions_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rigging.filesystem.prefix.region_from_metadata", lambda: "europe-west4")
    assert marin_prefix() == "gs://marin-eu-west4"


@pytest.mark.parametrize(("asked", "given"), [(1, 1), (1.5, 2), (7, 7), (8, 14), (15, 30), (30, 30), (365, 30)])
def test_lifetime_is_rounded_up_to_one_with_a_rule(asked: float, given: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_PREFIX", "gs://marin-us-central2/sub")
    assert marin_temp_bucket(asked, "a/b") == f"gs://marin-us-central2/tmp/ttl={given}d/a/b"
    assert marin_temp_bucket(asked) == f"gs://marin-us-central2/tmp/ttl={given}d"


@pytest.mark.parametrize("ttl", [0, 0.5, -1, float("nan")])
def test_lifetime_below_a_day_is_refused(ttl: float) -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        marin_temp_bucket(ttl)


def test_temp_lies_under_the_prefix_or_beside_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    assert marin_prefix() == "/tmp/marin"
    assert marin_temp_bucket(3, "x") == "file:///tmp/marin/tmp/x"
    monkeypatch.setenv("MARIN_PREFIX", "s3://mine/root/")
    assert marin_temp_bucket(3, "x") == "s3://mine/root/tmp/x"
    assert marin_temp_bucket(1, "x", source_prefix="gs://marin-us-east1/d") == "gs://marin-us-east1/tmp/ttl=1d/x"
    assert marin_temp_bucket(1, "x", source_prefix="/data") == "file:///data/tmp/x"
    with pytest.raises(InvalidRequest, match=r"'\.\.'"):
        marin_temp_bucket(1, "../x")


@pytest.mark.parametrize(
    ("given", "absolute"),
    [("data/x", "{cwd}/data/x"), ("/data", "/data"), ("gs://b/x", "gs://b/x"), ("simplecache::b", "simplecache::b")],
)
def test_a_root_becomes_absolute(given: str, absolute: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_prefix(given) == absolute.format(cwd=tmp_path)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("", "empty; give a path or a URL"),
        ("  ", "empty; give a path or a URL"),
        ("s4://bucket", "prefix='s4://bucket': nothing here opens s4:// URLs; give a path or a URL"),
    ],
)
def test_a_root_that_is_empty_or_that_nothing_opens_is_refused(given: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        absolute_prefix(given)
    for known in ("gs://b", "s3://b/x", "memory://x", "file:///x", "mirror://x", "simplecache::gs://b", "/x://y"):
        assert absolute_prefix(known) == known
    with pytest.raises(AttributeError, match=r"module 'rigging\.filesystem' has no attribute 'nothing'"):
        _ = rigging.filesystem.nothing  # type: ignore[attr-defined]
