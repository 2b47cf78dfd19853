from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rigging.errors import InvalidRequest, NotFound, Unavailable
from rigging.filesystem import (
    check_gcs_paths_same_region,
    check_path_in_region,
    collect_gcs_paths,
    filesystem,
    get_bucket_location,
    split_gcs_path,
)
from rigging.filesystem.bucket_location import BUCKET_LOCATIONS, same_place
from rigging.testing.gcs_server import GcsServer


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


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("us-central2", "US-CENTRAL2", True),
        ("us-central2", "us-central1", False),
        ("US", "us-central2", True),
        ("EU", "europe-west4", True),
        ("us", "europe-west4", False),
        ("us", "eu", False),
        ("asia", "asia-east1", True),
        ("asia", "australia-southeast1", False),
        ("nam4", "us-central1", True),
        ("nam4", "us-central2", False),
        ("eur4", "europe-west4", True),
    ],
)
def test_same_place(one: str, other: str, same: bool) -> None:
    assert same_place(one, other) is same_place(other, one) is same


def test_marin_buckets_are_where_their_names_say() -> None:
    assert get_bucket_location("gs://marin-eu-west4/some/path") == "europe-west4"
    assert get_bucket_location("marin-us-central2") == "us-central2"


def test_other_buckets_are_asked_once(gcs_server: GcsServer) -> None:
    BUCKET_LOCATIONS.forget()
    gcs_server.create_bucket("location-asked", "US-WEST4")
    gcs_server.reset_traffic()
    for _ in range(3):
        assert get_bucket_location("gs://location-asked/x") == "us-west4"
    assert sum(gcs_server.traffic()["location-asked"].requests.values()) == 1


def test_a_bucket_that_is_not_there(gcs_server: GcsServer) -> None:
    with pytest.raises(NotFound, match="gs://no-such-bucket: there is no such bucket"):
        get_bucket_location("gs://no-such-bucket/x")


def hide_locations(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = filesystem("gs").unguarded
    monkeypatch.setattr(fs, "info", lambda path, **kwargs: {"name": path, "size": 0, "type": "directory"})


def test_a_bucket_that_hides_its_location(gcs_server: GcsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    hide_locations(monkeypatch)
    with pytest.raises(Unavailable, match=r"gs://shy is not known: .*storage\.buckets\.get"):
        get_bucket_location("shy")


class NoCredentials(Exception):
    """As the client libraries raise them: of no kind of ours, and no OSError."""


def test_a_bucket_that_cannot_be_asked_about_is_not_asked_about_again_soon(
    gcs_server: GcsServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[str] = []

    def refuse(path: str, **_: object) -> None:
        asked.append(path)
        raise NoCredentials("could not find any credentials")

    BUCKET_LOCATIONS.forget()
    monkeypatch.setattr(filesystem("gs").unguarded, "info", refuse)
    with pytest.raises(Unavailable, match="gs://locked cannot be asked for: could not find any credentials") as caught:
        get_bucket_location("gs://locked/x")
    assert isinstance(caught.value.__cause__, NoCredentials)
    with pytest.raises(Unavailable, match="gs://locked is not known"):
        get_bucket_location("gs://locked/y")
    assert asked == ["locked"]
    check_gcs_paths_same_region({"a": "gs://locked/x"}, region="us-east1")
    assert "a: cannot check the region of gs://locked/x" in caplog.text
    BUCKET_LOCATIONS.forget()


def test_paths_elsewhere_are_listed_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config("gs://marin-us-central2/a", Inner(["gs://marin-us-east1/b", "gs://marin-eu-west4/c"]))
    check_gcs_paths_same_region(config)
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


def test_an_unknown_region_passes_unless_that_is_not_ok() -> None:
    check_gcs_paths_same_region({"a": "gs://marin-us-central2/a"})
    with pytest.raises(InvalidRequest, match="region is unknown: set MARIN_PREFIX"):
        check_gcs_paths_same_region({"a": "gs://marin-us-central2/a"}, local_ok=False)


def test_one_path() -> None:
    check_path_in_region("cache", "gs://marin-us-east1/x", "us-east1")
    with pytest.raises(InvalidRequest, match=r"cache: gs://marin-us-east1/x is in us-east1, not in us-west4\. Use"):
        check_path_in_region("cache", "gs://marin-us-east1/x", "us-west4")
    check_path_in_region("cache", "/local", "us-west4", local_ok=True)
    with pytest.raises(InvalidRequest, match="cache: '/local' is not a gs:// path"):
        check_path_in_region("cache", "/local", "us-west4")


def test_a_location_that_cannot_be_learned_passes_with_a_warning(
    gcs_server: GcsServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hide_locations(monkeypatch)
    check_gcs_paths_same_region({"a": "gs://shy/x"}, region="us-east1")
    assert "a: cannot check the region of gs://shy/x" in caplog.text
