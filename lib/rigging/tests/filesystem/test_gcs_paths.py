from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rigging.errors import InvalidRequest
from rigging.filesystem import (
    check_gcs_paths_same_region,
    check_path_in_region,
    collect_gcs_paths,
    filesystem,
    split_gcs_path,
)
from rigging.filesystem.bucket_location import BUCKET_LOCATIONS
from support.rigging.gcs_server import GcsServer


def test_split_gcs_path() -> None:
    assert split_gcs_path("gs://b/a/c.txt") == ("b", Path("a/c.txt"))
    assert split_gcs_path("gs://b") == ("b", Path("."))
    for wrong in ("s3://b/a", "/b/a", "gs://", "b"):
        with pytest.raises(ValueError, match="expected gs://BUCKET"):
            split_gcs_path(wrong)


@dataclass
class Inner:
    files: list[str]


@dataclass
class Config:
    a: str
    inner: Inner
    more: dict[str, object] = field(default_factory=dict)


def test_collect_gcs_paths_names_where_each_was_found() -> None:
    config = Config(
        "gs://one/a",
        Inner(["/local", "gs://two/b"]),
        {"k": ("gs://three", Path("gs://four/x")), "n": 1, "s": {"gs://5"}},
    )
    assert collect_gcs_paths(config, path_prefix="config") == [
        ("config.a", "gs://one/a"),
        ("config.inner.files[1]", "gs://two/b"),
        ("config.more.k[0]", "gs://three"),
        ("config.more.k[1]", "gs://four/x"),
        ("config.more.s[0]", "gs://5"),
    ]


def test_a_config_that_contains_itself_is_walked_once() -> None:
    config: dict[str, object] = {"a": "gs://one"}
    config["self"] = [config]
    assert collect_gcs_paths(config) == [("a", "gs://one")]
    shared = ["gs://two"]
    assert collect_gcs_paths([shared, shared]) == [("[0][0]", "gs://two"), ("[1][0]", "gs://two")]


def test_paths_elsewhere_are_listed_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config("gs://marin-us-central2/a", Inner(["gs://marin-us-east1/b", "gs://marin-eu-west4/c"]))
    check_gcs_paths_same_region(config)
    with pytest.raises(InvalidRequest, match="region is unknown: set MARIN_PREFIX"):
        check_gcs_paths_same_region(config, local_ok=False)
    monkeypatch.setenv("MARIN_PREFIX", "gs://marin-us-central2")
    with pytest.raises(InvalidRequest) as refused:
        check_gcs_paths_same_region(config)
    message = str(refused.value)
    assert "inner.files[0]: gs://marin-us-east1/b is in us-east1, not in us-central2" in message
    assert "inner.files[1]: gs://marin-eu-west4/c is in europe-west4" in message
    assert "gs://marin-us-central2/a" not in message
    assert "gs://marin-us-central2/..." in message
    assert "mirror://" in message
    check_gcs_paths_same_region({"a": "gs://marin-us-central2/a", "b": "/local"})
    with pytest.raises(InvalidRequest, match="not in us-east1"):
        check_gcs_paths_same_region({"a": "gs://marin-us-central2/a"}, region="us-east1")
    check_path_in_region("cache", "gs://marin-us-east1/x", "us-east1")
    check_path_in_region("cache", "/local", "us-west4", local_ok=True)
    for path, words in (
        ("gs://marin-us-east1/x", r"cache: gs://marin-us-east1/x is in us-east1, not in us-west4\. Use"),
        ("/local", "cache: '/local' is not a gs:// path"),
    ):
        with pytest.raises(InvalidRequest, match=words):
            check_path_in_region("cache", path, "us-west4")


def test_a_location_that_cannot_be_learned_passes_with_a_warning(
    gcs_server: GcsServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(filesystem("gs").unguarded, "info", lambda path, **_: {"name": path, "type": "directory"})
    check_gcs_paths_same_region({"a": "gs://shy/x"}, region="us-east1")
    assert "a: cannot check the region of gs://shy/x" in caplog.text
    BUCKET_LOCATIONS.forget()
